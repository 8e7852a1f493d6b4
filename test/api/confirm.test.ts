import { PassThrough } from 'node:stream'
import { afterEach, expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { type ClientOutput, runClient } from '../../src/cli/client.ts'
import type { ClientRequest } from '../../src/cli/client-options.ts'
import { askForYes } from '../../src/cli/confirm.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from './recording-instance.ts'

/** Before commit and reverse the client asks the operator. The tests cover when it asks, what it shows, and what it sends. */

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function servedInstance() {
  const { api, instance } = apiUnderTest()
  const directionMapping = { Source: 'cluster0: old:27017', Destination: 'cluster1: new:27017' }
  instance.shown = { ...idleProgress, state: 'RUNNING', canCommit: true, directionMapping }
  const server = await serveApi({ api, port: 0 })
  closers.push(server.close)
  return { instance, url: `http://127.0.0.1:${server.port}` }
}

/** Runs the client. If `answer` is left out, the client has no terminal. */
async function run(request: Partial<ClientRequest> & Pick<ClientRequest, 'urls'>, answer?: boolean) {
  const [printed, said, shown]: [string[], string[], string[]] = [[], [], []]
  const output: ClientOutput = {
    out: (line) => void printed.push(line),
    err: (line) => void said.push(line),
    width: 100,
    ...(answer !== undefined && {
      confirm: async (lines) => {
        shown.push(...lines)
        return answer
      },
    }),
  }
  const exitCode = await runClient({ command: 'commit', body: { inline: {} }, confirms: true, ...request }, output)
  return { exitCode, said, shown: shown.join(' ') }
}

test('a commit is sent only after it is confirmed, and the question shows both clusters and the state', async () => {
  const { instance, url } = await servedInstance()
  const refused = await run({ urls: [url] }, false)
  expect(refused).toMatchObject({ exitCode: 1, said: ['not confirmed; the command was not sent'] })
  expect(refused.shown).toMatch(/^commit: RUNNING.*from +cluster0: old:27017.*to +cluster1: new:27017.*tandem abort/)
  expect(instance.calls).toEqual([])
  expect(await run({ urls: [url] }, true)).toMatchObject({ exitCode: 0, said: [] })
  expect(instance.calls.map(({ command }) => command)).toEqual(['commit'])
})

test('the question before reverse shows the direction now and the direction after the reversal', async () => {
  const { instance, url } = await servedInstance()
  const { shown } = await run({ command: 'reverse', urls: [url] }, true)
  expect(shown).toMatch(/now +cluster0: \S+ -> cluster1: \S+ +then +cluster1: \S+ -> cluster0/)
  expect(instance.calls.map(({ command }) => command)).toEqual(['reverse'])
})

test('the client does not ask without a terminal or with --yes', async () => {
  const { instance, url } = await servedInstance()
  expect((await run({ urls: [url] })).exitCode).toBe(0)
  expect(await run({ urls: [url], confirms: false }, false)).toMatchObject({ exitCode: 0, shown: '' })
  expect(instance.calls).toHaveLength(2)
})

test('the client also asks when no instance answers, because one may answer when the command is sent', async () => {
  const { exitCode, shown } = await run({ urls: ['http://127.0.0.1:1'] }, false)
  expect(exitCode).toBe(1)
  expect(shown).toMatch(
    /commit: no instance has reported its progress.*warning: no instance answers at http:\/\/127\.0\.0\.1:1 /,
  )
})

test('the question names an address that does not answer', async () => {
  const { instance, url } = await servedInstance()
  const { shown } = await run({ urls: [url, 'http://127.0.0.1:1'] }, false)
  expect(shown).toMatch(/1 not answering.*warning: no instance answers at http:\/\/127\.0\.0\.1:1 /)
  expect(instance.calls).toEqual([])
})

test.each([
  ['yes\n', true],
  [' YES \n', true],
  ['y\n', false],
  ['\n', false],
  ['no\nyes\n', false],
  ['', false],
])('the line %j means %s', async (typed, expected) => {
  const [input, output] = [new PassThrough(), new PassThrough()]
  input.end(typed)
  expect(await askForYes(['one', 'two'], { input, output })).toBe(expected)
  expect(String(output.read())).toContain('one\ntwo\nType yes to continue: ')
})
