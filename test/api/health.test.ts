import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { runHealth } from '../../src/cli/health.ts'
import { parseCommandLine } from '../../src/cli/options.ts'
import { tlsPem } from '../support/tls/files.ts'
import { refused } from './parsed.ts'
import { apiUnderTest } from './recording-instance.ts'

/** `tandem health` sends its request to the instance that runs with the same options. */

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function run(url: string) {
  const [printed, said]: [string[], string[]] = [[], []]
  const exitCode = await runHealth({ url }, { out: (line) => printed.push(line), err: (line) => said.push(line) })
  return { exitCode, printed, said }
}

function urlOf(args: string[], env: Record<string, string> = {}): string {
  const parsed = parseCommandLine(['health', ...args], env)
  if (parsed.kind !== 'health') throw new Error(JSON.stringify(parsed))
  return parsed.request.url
}

describe('the address', () => {
  test.each([
    [[], 'http://127.0.0.1:27182'],
    [['--port', '1234'], 'http://127.0.0.1:1234'],
    [['--bind', '127.0.0.2'], 'http://127.0.0.2:27182'],
    [['--bind', '0.0.0.0', '--tlsCert', 'server.pem'], 'https://127.0.0.1:27182'],
    [['--bind', '::', '--tlsCert', 'server.pem'], 'https://[::1]:27182'],
    [['--bind', 'fd00::1', '--tlsCert', 'server.pem'], 'https://[fd00::1]:27182'],
  ])('of the options %j is %s', (args, url) => {
    expect(urlOf(args)).toBe(url)
  })

  test('follows the environment and the configuration file, and needs no connection strings', () => {
    const config = path.join(mkdtempSync(path.join(tmpdir(), 'tandem-health-')), 'tandem.yaml')
    writeFileSync(config, 'port: 27190\nbind: 0.0.0.0\ntlsCert: server.pem\ntokenFile: token\n')
    chmodSync(config, 0o600)
    expect(urlOf([], { TANDEM_CONFIG: config })).toBe('https://127.0.0.1:27190')
    expect(urlOf([], { TANDEM_CONFIG: config, TANDEM_PORT: '27191' })).toBe('https://127.0.0.1:27191')
  })

  test('cannot be determined if the instance takes a free port', () => {
    expect(refused(['health', '--port', '0'])).toMatch(/^error: --port: with 0 the instance takes a free port/)
  })
})

describe('the exit code', () => {
  test('is 0 if the instance answers, also over TLS with a certificate of an unknown authority', async () => {
    const { api } = apiUnderTest({ token: 'x'.repeat(32) })
    for (const tls of [null, { cert: tlsPem.server, key: tlsPem.server }]) {
      const server = await serveApi({ api, port: 0, tls })
      closers.push(server.close)
      const url = `${tls ? 'https' : 'http'}://127.0.0.1:${server.port}`
      expect(await run(url)).toEqual({ exitCode: 0, printed: [`${url} answers`], said: [] })
    }
  })

  test('is 5 if nothing answers, or if another program answers', async () => {
    const other: Server = createServer((_request, response) => response.writeHead(404).end()).listen(0, '127.0.0.1')
    closers.push(() => other.close())
    await new Promise((resolve) => other.once('listening', resolve))
    const at = `http://127.0.0.1:${(other.address() as AddressInfo).port}`
    expect(await run(at)).toMatchObject({ exitCode: 5, printed: [], said: [expect.stringMatching(/answers 404/)] })
    expect(await run('http://127.0.0.1:1')).toMatchObject({
      exitCode: 5,
      said: ['error: http://127.0.0.1:1 does not answer (ECONNREFUSED)'],
    })
    expect(await run(at.replace('http:', 'https:'))).toMatchObject({ exitCode: 5, printed: [] })
  })
})
