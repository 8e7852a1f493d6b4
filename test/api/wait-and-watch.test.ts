import { afterEach, describe, expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { parseCommandLine } from '../../src/cli/options.ts'
import { runWait, type WaitRequest } from '../../src/cli/wait.ts'
import { runWatch } from '../../src/cli/watch.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from './recording-instance.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function served(shown: Partial<Progress> = {}) {
  const { api, instance } = apiUnderTest()
  instance.shown = { ...idleProgress, ...shown }
  const server = await serveApi({ api, port: 0 })
  closers.push(server.close)
  return { instance, url: `http://127.0.0.1:${server.port}`, close: server.close }
}

async function wait(request: Partial<WaitRequest> & Pick<WaitRequest, 'urls' | 'until'>, onNote = () => {}) {
  const printed: string[] = []
  const said: string[] = []
  const notes: string[] = []
  const output = {
    out: (line: string) => void printed.push(line),
    err: (line: string) => void said.push(line),
    report: (line: string) => {
      notes.push(line)
      onNote()
    },
    interactive: true,
  }
  const exitCode = await runWait({ timeoutSeconds: 20, json: false, ...request }, output)
  return { exitCode, printed, said, notes }
}

describe('wait', () => {
  test('exits with 0 when all instances have reached the condition, and shows their state until then', async () => {
    const [one, two] = [await served({ state: 'RUNNING', canCommit: true }), await served({ state: 'RUNNING' })]
    const { exitCode, printed, notes } = await wait({ urls: [one.url, two.url], until: 'canCommit' }, () => {
      two.instance.shown = { ...two.instance.shown, canCommit: true }
    })
    expect(exitCode).toBe(0)
    expect(notes).toEqual([expect.stringMatching(/^canCommit: \d+ s, RUNNING$/)])
    expect(printed[0]).toMatch(/^canCommit after [\d.]+ s$/)
  })

  test('a condition that the sync has passed counts as reached', async () => {
    const { url } = await served({ state: 'COMMITTED', canWrite: true })
    for (const until of ['canCommit', 'canWrite', 'committed'] as const) {
      expect(await wait({ urls: [url], until, timeoutSeconds: 5 })).toMatchObject({ exitCode: 0 })
    }
  })

  test('exits with 1 when an instance is FAILED, and prints the failure', async () => {
    const failure = { error: 'VerificationFailed' as const, errorDescription: 'run tandem repair' }
    const [one, two] = [await served({ state: 'RUNNING' }), await served({ state: 'FAILED', failure })]
    expect(await wait({ urls: [one.url, two.url], until: 'committed' })).toMatchObject({
      exitCode: 1,
      printed: [
        'FAILED',
        'VerificationFailed: run tandem repair (nothing is lost; see docs/troubleshooting.md#verificationfailed)',
      ],
    })
  })

  test('exits with 3 when the time limit has passed, and names the instances that did not answer', async () => {
    const stopped = await served()
    await stopped.close()
    const { url } = await served({ state: 'RUNNING' })
    const { exitCode, printed, said } = await wait({ urls: [url, stopped.url], until: 'running', timeoutSeconds: 0.2 })
    expect(exitCode).toBe(3)
    expect(printed).toEqual([expect.stringMatching(/^not running after/)])
    expect(said).toEqual([expect.stringContaining(stopped.url)])
  })

  test('exits with 4 and the reason when an instance denies access, because waiting would not help', async () => {
    const { api } = apiUnderTest({ token: 'the-only-token-that-is-accepted' })
    const server = await serveApi({ api, port: 0 })
    closers.push(server.close)
    const url = `http://127.0.0.1:${server.port}`
    const { exitCode, printed, said } = await wait({ urls: [url], until: 'committed', timeoutSeconds: null })
    expect(exitCode).toBe(4)
    expect(printed).toEqual(['access denied'])
    expect(said).toEqual([expect.stringContaining('token')])
  })

  test('prints the last progress of the instances as JSON', async () => {
    const { url } = await served({ state: 'PAUSED' })
    const { printed } = await wait({ urls: [url], until: 'paused', json: true })
    expect(JSON.parse(printed[0] as string)).toMatchObject({
      outcome: 'reached',
      until: 'paused',
      progress: [{ state: 'PAUSED' }],
      unanswered: [],
    })
  })
})

describe('watch', () => {
  async function watch(width: number | null, samples: number, json = false): Promise<string[]> {
    const { url } = await served({ state: 'RUNNING', info: 'collection copy' })
    const ended = new AbortController()
    const written: string[] = []
    const write = (text: string): void => {
      written.push(text)
      if (written.length >= samples) ended.abort()
    }
    const request = { urls: [url], intervalSeconds: 0.01, json }
    expect(await runWatch(request, { write, width: () => width, signal: ended.signal })).toBe(0)
    return written
  }

  test('prints a line for each sample when the output is not a terminal', async () => {
    const lines = await watch(null, 2)
    expect(lines).toHaveLength(2)
    for (const line of lines) expect(line).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z RUNNING \(collection copy\)\n$/)
  })

  test('overwrites the previous sample on a terminal', async () => {
    for (const drawn of await watch(80, 2)) {
      expect(drawn.startsWith('\u001b[H')).toBe(true)
      expect(drawn.endsWith('\u001b[J')).toBe(true)
      expect(drawn).toContain('RUNNING (collection copy)\u001b[K\n')
    }
  })

  test('prints each sample as a line of JSON', async () => {
    const [line] = await watch(80, 1, true)
    expect(JSON.parse(line as string)).toMatchObject({
      progress: [{ state: 'RUNNING' }],
      instances: [],
      unanswered: [],
    })
  })
})

describe('on the command line', () => {
  test('wait accepts a condition, a time limit and addresses', () => {
    const argv = ['wait', '--until', 'canCommit', '--timeout', '90', '--url', 'http://a.test', '--url', 'http://b.test']
    expect(parseCommandLine(argv, {})).toEqual({
      kind: 'wait',
      request: { urls: ['http://a.test', 'http://b.test'], until: 'canCommit', timeoutSeconds: 90, json: false },
    })
  })

  test('watch needs no options', () => {
    expect(parseCommandLine(['watch'], {})).toEqual({
      kind: 'watch',
      request: { urls: ['http://localhost:27182'], intervalSeconds: null, json: false },
    })
  })

  test.each([
    [['wait'], /--until/],
    [['wait', '--until', 'done'], /Allowed choices are running, canCommit, paused, canWrite, committed/],
    [['wait', '--until', 'committed', '--timeout', '0'], /number of seconds above 0/],
    [['watch', '--interval', 'often'], /number of seconds above 0/],
  ])('%j is refused', (argv, message) => {
    expect(parseCommandLine(argv, {})).toMatchObject({
      kind: 'print',
      exitCode: 2,
      text: expect.stringMatching(message),
    })
  })
})
