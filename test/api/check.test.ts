import { afterEach, expect, test, vi } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { runClient } from '../../src/cli/client.ts'
import { parseCommandLine } from '../../src/cli/options.ts'
import { deferred } from '../../src/domain/deferred.ts'
import type { Finding } from '../../src/domain/finding.ts'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

const info: Finding = { severity: 'info', name: 'ClockSkew', message: 'm1', remedy: 'r1' }
const error: Finding = {
  severity: 'error',
  name: 'UnsupportedCollection',
  namespace: 'a.b',
  message: 'm2',
  remedy: 'r2',
}

const warning: Finding = { severity: 'warning', name: 'LittleDiskSpace', message: 'm3', remedy: 'r3' }

interface CheckWith {
  terminalWidth?: number | null
  failOn?: 'error' | 'warning'
}

async function check(findings: Finding[], { terminalWidth = null, failOn }: CheckWith = {}) {
  const { api, instance } = apiUnderTest()
  instance.findings = findings
  const server = await serveApi({ api, port: 0 })
  closers.push(server.close)
  const printed: string[] = []
  const request = {
    command: 'check',
    urls: [`http://127.0.0.1:${server.port}`],
    body: { inline: minimalStart },
    ...(failOn && { failOn }),
  } as const
  const out = (line: string) => void printed.push(line)
  const exitCode = await runClient({ ...request, urls: [...request.urls] }, { out, err: out, width: terminalWidth })
  return { exitCode, printed, instance }
}

test('the answer has every finding, errors first, and status 200', async () => {
  const { post, instance } = apiUnderTest()
  instance.findings = [info, error]
  const reply = await post('/api/v1/check', minimalStart)
  expect([reply.status, reply.body]).toEqual([200, { success: true, findings: [error, info] }])
  expect(instance.calls.map(({ command }) => command)).toEqual(['check'])
})

test('skipDiskSpaceCheck is passed on to check, and has no effect in start', async () => {
  const { post, instance } = apiUnderTest()
  const skipping = { ...minimalStart, skipDiskSpaceCheck: true }
  for (const body of [minimalStart, skipping]) expect((await post('/api/v1/check', body)).status).toBe(200)
  expect(instance.calls.map(({ options }) => options)).toEqual([
    { skipDiskSpaceCheck: false },
    { skipDiskSpaceCheck: true },
  ])
  for (const body of [minimalStart, skipping]) expect((await post('/api/v1/start', body)).status).toBe(200)
  const [, , plain, started] = instance.calls
  // Both starts have the same configuration, so instances that receive different ones share the sync.
  expect(started?.configuration).toEqual(plain?.configuration)
  expect(await post('/api/v1/start', { ...minimalStart, skipDiskSpaceCheck: 1 })).toMatchObject({
    status: 400,
    body: { errorDescription: expect.stringContaining('skipDiskSpaceCheck') },
  })
})

test('one check runs at a time: a second one is refused with TooManyRequests, and another is accepted once the first has ended', async () => {
  const { post, instance } = apiUnderTest()
  const ended = deferred<void>()
  instance.answer = () => ended.promise
  const first = post('/api/v1/check', minimalStart)
  await vi.waitFor(() => expect(instance.calls).toHaveLength(1))
  const second = post('/api/v1/check', minimalStart)
  const refused = await Promise.race([second, vi.waitFor(() => expect(instance.calls).toHaveLength(2))])
  expect(refused).toMatchObject({ status: 429, body: { error: 'TooManyRequests' } })
  // The running check does not delay a start.
  instance.answer = async () => {}
  expect((await post('/api/v1/start', minimalStart)).status).toBe(200)
  ended.resolve()
  expect((await first).status).toBe(200)
  instance.answer = () => Promise.reject(new Error('x'))
  expect((await post('/api/v1/check', minimalStart)).status).toBe(500)
  instance.answer = async () => {}
  expect((await post('/api/v1/check', minimalStart)).status).toBe(200)
})

test('check reports contradicting options as findings, and refuses an invalid body', async () => {
  const { post, instance } = apiUnderTest()
  const contradiction = { ...minimalStart, buildIndexes: 'never', reversible: true }
  expect((await post('/api/v1/check', contradiction)).status).toBe(200)
  expect((await post('/api/v1/start', contradiction)).status).toBe(422)
  expect((await post('/api/v1/check', { ...minimalStart, nonsense: 1 })).status).toBe(400)
  expect(instance.calls).toHaveLength(1)
})

test('tandem check takes the options of start', () => {
  const options = ['--source', 'cluster1', '--destination', 'cluster0', '--reversible']
  expect(parseCommandLine(['check', ...options], {})).toMatchObject({
    kind: 'client',
    request: { command: 'check', body: { inline: { source: 'cluster1', destination: 'cluster0', reversible: true } } },
  })
})

test('tandem check ends with 1 when there is an error, and with 0 when there is none', async () => {
  expect(await check([error, info])).toMatchObject({ exitCode: 1 })
  const { exitCode, printed } = await check([info])
  expect([exitCode, JSON.parse(printed.join(''))]).toEqual([0, { success: true, findings: [info] }])
})

test('with --fail-on=warning tandem check ends with 1 when there is a warning, too', async () => {
  expect(await check([warning, info])).toMatchObject({ exitCode: 0 })
  for (const findings of [[warning, info], [error]])
    expect(await check(findings, { failOn: 'warning' })).toMatchObject({ exitCode: 1 })
  expect(await check([info], { failOn: 'warning' })).toMatchObject({ exitCode: 0 })
  const failOn = (...args: string[]) => parseCommandLine(['check', ...args], {})
  expect(failOn('--fail-on=warning')).toMatchObject({ kind: 'client', request: { failOn: 'warning' } })
  expect(failOn()).toMatchObject({ kind: 'client', request: { failOn: 'error' } })
  expect(failOn('--fail-on', 'info')).toMatchObject({ exitCode: 2, text: expect.stringMatching(/error, warning/) })
  expect(parseCommandLine(['start', '--fail-on=warning'], {})).toMatchObject({ exitCode: 2 })
})

test('on a terminal, tandem check prints a line for each finding and what to do', async () => {
  expect((await check([error, info], { terminalWidth: 80 })).printed).toEqual([
    'error    UnsupportedCollection: m2',
    '         → r2',
    'info     ClockSkew: m1',
    '         → r1',
  ])
  expect((await check([], { terminalWidth: 80 })).printed).toEqual(['nothing found: start will be accepted'])
})
