import { mkdtempSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { runClient } from '../../src/cli/client.ts'
import type { ClientRequest } from '../../src/cli/client-options.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

const unreachable = 'http://127.0.0.1:1'

async function servedInstance() {
  const { api, instance } = apiUnderTest()
  const server = await serveApi({ api, port: 0 })
  closers.push(server.close)
  return { instance, url: `http://127.0.0.1:${server.port}` }
}

async function run(command: ClientRequest['command'], urls: string[], body: ClientRequest['body'] = { inline: {} }) {
  const [printed, said]: [string[], string[]] = [[], []]
  const out = (line: string) => void printed.push(line)
  const err = (line: string) => void said.push(line)
  const exitCode = await runClient({ command, urls, body }, { out, err, width: null })
  // biome-ignore lint/suspicious/noExplicitAny: replies of every shape
  return { exitCode, printed, said, replies: printed.map((line) => JSON.parse(line) as any) }
}

test('sends the command and prints the reply', async () => {
  const { instance, url } = await servedInstance()
  expect(await run('start', [url], { inline: minimalStart })).toMatchObject({
    exitCode: 0,
    replies: [{ success: true }],
  })
  expect(await run('commit', [url])).toMatchObject({ exitCode: 0, replies: [{ success: true }] })
  const progress = await run('progress', [url])
  expect(progress.replies).toMatchObject([{ success: true, progress: { state: 'IDLE' } }])
  expect(instance.calls.map(({ command }) => command)).toEqual(['start', 'commit'])
})

test('limit changes limits, and limits prints them', async () => {
  const { url } = await servedInstance()
  const limits = { bytesPerSecond: null, readConcurrency: 2, writeConcurrency: 4 }
  const changed = await run('limit', [url], { inline: { readConcurrency: 2 } })
  expect(changed).toMatchObject({ exitCode: 0, replies: [{ success: true, limits }] })
  expect(await run('limits', [url])).toMatchObject({ exitCode: 0, replies: [{ success: true, limits }] })
  expect(await run('limit', [url], { inline: { readConcurrency: 'two' } })).toMatchObject({ exitCode: 4 })
})

test('after a refusal the client prints the refusal and exits with 4', async () => {
  const { instance, url } = await servedInstance()
  instance.answer = () => Promise.reject(new RefusedError('CannotCommit', 'not yet'))
  expect(await run('commit', [url])).toMatchObject({
    exitCode: 4,
    replies: [{ success: false, error: 'CannotCommit', errorDescription: 'not yet' }],
  })
})

test('if the outcome of a command may be unknown, the client exits with 6', async () => {
  const { instance, url } = await servedInstance()
  instance.answer = () => Promise.reject(new RefusedError('ClusterUnreachable', 'no primary'))
  expect(await run('commit', [url])).toMatchObject({ exitCode: 6, replies: [{ error: 'ClusterUnreachable' }] })
  instance.answer = () => Promise.reject(new Error('a bug'))
  expect(await run('commit', [url])).toMatchObject({ exitCode: 6, replies: [{ error: 'InternalError' }] })
})

test('sends to several instances in parallel and prints a line for each, in order', async () => {
  const [one, two] = [await servedInstance(), await servedInstance()]
  // Each instance answers only after both have received the command, so a sequential client would wait forever.
  let arrived = 0
  const both = () =>
    new Promise<void>((resolve) => {
      arrived += 1
      const timer = setInterval(() => {
        if (arrived < 2) return
        clearInterval(timer)
        resolve()
      }, 5)
    })
  one.instance.answer = both
  two.instance.answer = both
  const { exitCode, printed, replies } = await run('commit', [one.url, two.url])
  expect(exitCode).toBe(0)
  expect(replies).toEqual([
    { url: one.url, success: true },
    { url: two.url, success: true },
  ])
  expect(printed.every((line) => !line.includes('\n'))).toBe(true)
})

test('with several instances, the answer with the least certain outcome decides the exit code', async () => {
  const [one, refusing, failing] = [await servedInstance(), await servedInstance(), await servedInstance()]
  refusing.instance.answer = () => Promise.reject(new RefusedError('WrongState', 'not now'))
  failing.instance.answer = () => Promise.reject(new RefusedError('NoAnswer', 'shardB'))
  expect((await run('pause', [one.url, refusing.url])).exitCode).toBe(4)
  expect((await run('pause', [one.url, unreachable, refusing.url])).exitCode).toBe(5)
  expect((await run('pause', [failing.url, unreachable])).exitCode).toBe(6)
})

test('the client does not print messages of its own among the answers of instances', async () => {
  const [one, two] = [await servedInstance(), await servedInstance()]
  const { replies, said } = await run('pause', [one.url, unreachable, two.url])
  expect(replies).toEqual([
    { url: one.url, success: true },
    { url: two.url, success: true },
  ])
  expect(said).toEqual([expect.stringMatching(/^error: InstanceUnreachable: no instance answers at .*:1 /)])
  // The reply also names the address if only one of several instances has answered.
  expect((await run('pause', [one.url, unreachable])).replies).toMatchObject([{ url: one.url }])
})

test('reports NotTandem when another program answers', async () => {
  const other = createServer((_request, response) => response.end('<html>')).listen(0, '127.0.0.1')
  closers.push(() => other.close())
  await new Promise((resolve) => other.once('listening', resolve))
  expect(await run('progress', [`http://127.0.0.1:${(other.address() as AddressInfo).port}`])).toMatchObject({
    exitCode: 5,
    printed: [],
    said: [expect.stringMatching(/^error: NotTandem: /)],
  })
})

test('reads a body from a file, and reports an invalid or missing file', async () => {
  const { instance, url } = await servedInstance()
  const directory = mkdtempSync(join(tmpdir(), 'tandem-client-'))
  writeFileSync(join(directory, 'good.json'), JSON.stringify(minimalStart))
  writeFileSync(join(directory, 'bad.json'), '{"password":')
  expect((await run('start', [url], { file: join(directory, 'good.json') })).exitCode).toBe(0)
  expect(instance.calls[0]?.configuration).toMatchObject(minimalStart)
  const bad = await run('start', [url], { file: join(directory, 'bad.json') })
  expect(bad).toMatchObject({
    exitCode: 2,
    printed: [],
    said: [expect.stringMatching(/^error: --body: .*not hold valid/)],
  })
  expect(bad.said.join()).not.toContain('password')
  const missing = await run('start', [url], { file: join(directory, 'missing.json') })
  expect(missing.said.join()).toMatch(/cannot read .*ENOENT/)
  expect(instance.calls).toHaveLength(1)
})

/** Starts an HTTP server that is not an instance of tandem. Returns its address. */
async function otherServer(answer: (response: ServerResponse) => void): Promise<string> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => answer(response))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closers.push(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

test('if the answer to a command is lost, the client exits with 6, because the instance may have executed the command', async () => {
  const broken = await otherServer((response) => response.destroy())
  const commit = await run('commit', [broken])
  expect(commit).toMatchObject({ exitCode: 6, printed: [] })
  expect(commit.said.join()).toMatch(/ECONNRESET.*may have been carried out; read tandem progress/)
  expect(await run('progress', [broken])).toMatchObject({ exitCode: 5 })
  expect(await run('commit', [unreachable])).toMatchObject({ exitCode: 5 })
})

test('if a gateway answers instead of the instance, the outcome of the command is unknown', async () => {
  const gateway = await otherServer((response) => void response.writeHead(504).end('<html>'))
  const commit = await run('commit', [gateway])
  expect(commit).toMatchObject({ exitCode: 6 })
  expect(commit.said.join()).toMatch(/NotTandem.*Read tandem progress before you send it again/)
  expect(await run('progress', [gateway])).toMatchObject({ exitCode: 5 })
})
