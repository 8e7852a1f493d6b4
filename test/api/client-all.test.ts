import { afterEach, describe, expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { runClient } from '../../src/cli/client.ts'
import type { ClientRequest } from '../../src/cli/client-options.ts'
import { parseCommandLine } from '../../src/cli/options.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import { peerCommands } from '../../src/domain/peer-command.ts'
import { apiUnderTest } from './recording-instance.ts'

/** With `--all`, the client sends a command to one instance, which passes the command on to all instances. */

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function servedInstance() {
  const { api, instance } = apiUnderTest()
  const server = await serveApi({ api, port: 0 })
  closers.push(server.close)
  return { instance, url: `http://127.0.0.1:${server.port}` }
}

async function run(request: Partial<ClientRequest> & Pick<ClientRequest, 'command' | 'urls'>, width: number | null) {
  const printed: string[] = []
  const out = (line: string) => void printed.push(line)
  const exitCode = await runClient({ body: { inline: {} }, all: true, ...request }, { out, err: out, width })
  return { exitCode, printed }
}

const refused = { success: false, error: 'WrongState', errorDescription: 'pause is accepted in RUNNING' } as const
const silent = { success: false, error: 'NoAnswer', errorDescription: 'has not taken the command' } as const

test.each(peerCommands)('%s is sent to one instance, which passes it on', async (command) => {
  const { instance, url } = await servedInstance()
  instance.peerAnswers = [
    ['shardA', { success: true }],
    ['shardB', { success: true }],
  ]
  const { exitCode, printed } = await run({ command, urls: [url] }, null)
  expect(exitCode).toBe(0)
  expect(JSON.parse(printed.join('\n'))).toEqual({
    success: true,
    answers: { shardA: { success: true }, shardB: { success: true } },
  })
  expect(instance.calls.map((call) => call.command)).toEqual([`all ${command}`])
})

test('on a terminal, the client prints a table with a line for each instance, and each refusal in full below the table', async () => {
  const { instance, url } = await servedInstance()
  instance.peerAnswers = [
    ['shardA', { success: true }],
    ['shardB', refused],
  ]
  expect(await run({ command: 'pause', urls: [url] }, 100)).toEqual({
    exitCode: 4,
    printed: [
      'instance  answer',
      'shardA    success',
      'shardB    WrongState',
      'shardB: WrongState: pause is accepted in RUNNING (nothing is lost; see docs/troubleshooting.md#wrongstate)',
    ],
  })
})

test('the instance whose outcome is least certain decides the exit code, also if another one refused first', async () => {
  const { instance, url } = await servedInstance()
  instance.peerAnswers = [
    ['shardA', refused],
    ['shardB', silent],
  ]
  expect((await run({ command: 'pause', urls: [url] }, null)).exitCode).toBe(6)
})

test('if the instance that receives the command refuses it, the client prints this refusal as that of the instance', async () => {
  const { instance, url } = await servedInstance()
  instance.answer = () => Promise.reject(new RefusedError('WrongState', 'no sync was started'))
  expect(await run({ command: 'pause', urls: [url] }, 100)).toEqual({
    exitCode: 4,
    printed: [
      expect.stringMatching(/^instance +answer$/),
      expect.stringMatching(/^127\.0\.0\.1:\d+ +WrongState$/),
      `${url}: WrongState: no sync was started (nothing is lost; see docs/troubleshooting.md#wrongstate)`,
    ],
  })
})

describe('the command line', () => {
  const parse = (...args: string[]) => parseCommandLine(args, {})

  test.each(peerCommands)('%s takes --all, with the default address or one --url', (command) => {
    const args = command === 'filter' ? [command, '--body', '{}'] : [command]
    const urls = ['http://localhost:27182']
    expect(parse(...args, '--all')).toMatchObject({ kind: 'client', request: { command, all: true, urls } })
    const given = parse(...args, '--all', '--url', 'http://localhost:1')
    expect(given).toMatchObject({ kind: 'client', request: { all: true, urls: ['http://localhost:1'] } })
  })

  test('several addresses are refused', () => {
    expect(parse('pause', '--all', '--url', 'http://localhost:1', '--url', 'http://localhost:2')).toEqual({
      kind: 'print',
      stream: 'stderr',
      text: 'error: --all: one instance passes the command on to all; give one --url\n',
      exitCode: 2,
    })
  })

  test.each(['start', 'check', 'progress', 'limit', 'repair', 'resync'])('%s has no --all', (command) => {
    expect(parse(command, '--all')).toMatchObject({ kind: 'print', exitCode: 2 })
  })

  test('the options of commit are passed on too', async () => {
    const { instance, url } = await servedInstance()
    instance.peerAnswers = [['shardA', { success: true }]]
    const parsed = parse('commit', '--all', '--dry-run', '--max-seconds', '60', '--url', url)
    if (parsed.kind !== 'client') throw new Error(JSON.stringify(parsed))
    expect((await run(parsed.request, null)).exitCode).toBe(0)
    expect(instance.calls).toEqual([
      { command: 'all commit', request: { ...plainCommit, dryRun: true, maxSeconds: 60 } },
    ])
  })
})
