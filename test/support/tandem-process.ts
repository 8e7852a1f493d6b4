import { existsSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Progress } from '../../src/domain/progress.ts'
import { claimPorts } from './free-ports.ts'
import { spawnGuarded } from './guarded-process.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { inPod, pidOutside } from './pod.ts'

const listenTimeoutMs = 60_000
const stopTimeoutMs = 20_000
const pollMs = 50
const endedGraceMs = 2_000
/** Enough to see what led to a failure, little enough for a test report. */
const outputLinesMax = 400
const outputLinesInErrors = 40

export interface TandemOptions {
  cluster0: string
  cluster1: string
  id?: string
  extraArgs?: string[]
  /** Default: a free one. */
  port?: number
  env?: Record<string, string>
  /** The program to run, from the repository's root. */
  entry?: string
  /** What goes wrong in it on purpose, where it is the program that is built. */
  faults?: Faults
  /** Host name of the pod in which it is pid 1; left out, it is a process like any other. */
  pod?: string
}

/** Of `faulty-tandem.mjs`, which runs instead where there are any. */
export interface Faults {
  /** A step of a commit or a reversal at which the process dies, as by kill -9. */
  crashAt?: string
  /** A namespace whose document events are lost before they are applied. */
  dropEventsOf?: string
  /** File with the milliseconds by which its monotonic clock is behind, as after a suspension of its machine. */
  stoodStill?: string
}

export interface CommandAnswer {
  status: number
  body: { success?: boolean; error?: string; errorDescription?: string; [field: string]: unknown }
}

export interface Tandem extends AsyncDisposable {
  /** Without a path: `http://127.0.0.1:<port>`. */
  url: string
  pid: number
  /** `POST /api/v1/<command>`; the body is `{}` unless given. */
  post(command: string, body?: unknown): Promise<CommandAnswer>
  progress(): Promise<Progress>
  /** Polls the progress until the predicate holds. Fails when the state is FAILED (unless that is what it waits for) or the process ends. */
  waitFor(
    predicate: (progress: Progress) => boolean,
    options: { timeoutSeconds: number; what: string },
  ): Promise<Progress>
  kill9(): Promise<void>
  /** SIGTERM, and SIGKILL where that does not end it. The exit code; null for a signal. */
  stop(): Promise<number | null>
  isRunning(): boolean
  /** The last lines of stdout and stderr, in the order they came. */
  output(): string
}

/** Without the variables of the tests themselves (TANDEM_MONGO_BIN and others), which an instance refuses as misspelt. */
export function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TANDEM_')))
}

/** The command line program as its users run it, in a process that ends with this one. */
export async function startTandem(options: TandemOptions): Promise<Tandem> {
  const { crashAt, dropEventsOf, stoodStill } = options.faults ?? {}
  const faults = {
    ...(crashAt && { FAULT_CRASH_AT: crashAt }),
    ...(dropEventsOf && { FAULT_DROP_EVENTS_OF: dropEventsOf }),
    ...(stoodStill && { FAULT_STOOD_STILL: stoodStill }),
  }
  const isFaulty = Object.keys(faults).length > 0
  const built = path.resolve(repositoryRoot, options.entry ?? 'dist/src/main.js')
  if (!existsSync(built)) throw new Error(`${built} does not exist: run \`npm run build\` first`)
  const entry = isFaulty ? path.resolve(repositoryRoot, 'test/support/faulty-tandem.mjs') : built
  const claimed = options.port === undefined ? await claimPorts(1) : null
  const port = options.port ?? (claimed?.ports[0] as number)
  const url = `http://127.0.0.1:${port}`
  const args = [
    ...['--cluster0', options.cluster0, '--cluster1', options.cluster1, '--port', String(port)],
    ...(options.id ? ['--id', options.id] : []),
    ...(options.extraArgs ?? []),
  ]
  const commandLine = [process.execPath, entry, ...args]
  const [command, commandArgs] = options.pod ? inPod(options.pod, commandLine) : [process.execPath, [entry, ...args]]
  const spawned = spawnGuarded(command, commandArgs, {
    cwd: repositoryRoot,
    env: { ...environment(), ...faults, ...options.env },
    output: 'pipe',
  })
  const { child, ended, isRunning } = spawned
  const pid = options.pod ? await pidOutside(spawned.pid) : spawned.pid
  const kill = async (signal: NodeJS.Signals = 'SIGKILL'): Promise<void> => {
    if (isRunning() && pid !== spawned.pid) process.kill(pid, signal)
    else await spawned.kill(signal)
    await ended
  }
  void ended.then(() => claimed?.release())

  const lines: string[] = []
  for (const stream of [child.stdout, child.stderr]) {
    let rest = ''
    stream?.setEncoding('utf8').on('data', (chunk: string) => {
      const parts = (rest + chunk).split('\n')
      rest = parts.pop() ?? ''
      lines.push(...parts)
      lines.splice(0, lines.length - outputLinesMax)
    })
    stream?.once('close', () => {
      if (rest !== '') lines.push(rest)
    })
  }
  const withOutput = (message: string) =>
    `${message}\n--- tandem ${pid} said:\n${lines.slice(-outputLinesInErrors).join('\n')}`

  async function ask(): Promise<{ status: number; progress: Progress | null; text: string }> {
    const response = await fetch(`${url}/api/v1/progress`)
    const text = await response.text()
    return { status: response.status, progress: (JSON.parse(text) as { progress?: Progress }).progress ?? null, text }
  }

  async function progress(): Promise<Progress> {
    const answer = await ask()
    if (answer.status !== 200 || !answer.progress) {
      throw new Error(withOutput(`progress answered ${answer.status} ${answer.text}`))
    }
    return answer.progress
  }

  async function waitUntilListening(): Promise<void> {
    const deadline = Date.now() + listenTimeoutMs
    for (;;) {
      if (!isRunning()) throw new Error(withOutput(`tandem ended with ${await ended} before it listened`))
      const response = await fetch(`${url}/api/v1/progress`).catch(() => null)
      if (response) {
        await response.arrayBuffer()
        return
      }
      if (Date.now() > deadline) throw new Error(withOutput(`tandem did not listen in ${listenTimeoutMs / 1000} s`))
      await delay(pollMs)
    }
  }

  async function waitFor(
    predicate: (progress: Progress) => boolean,
    { timeoutSeconds, what }: { timeoutSeconds: number; what: string },
  ): Promise<Progress> {
    const deadline = Date.now() + timeoutSeconds * 1000
    let last: Progress | null = null
    for (;;) {
      try {
        const answer = await ask()
        // 503: still connecting to its clusters, as right after a restart.
        if (answer.status !== 503) last = answer.progress
      } catch (error) {
        // A process that ends closes its connections before its end is known here.
        await Promise.race([ended, delay(endedGraceMs)])
        if (isRunning()) throw error
      }
      if (!isRunning()) {
        throw new Error(withOutput(`tandem ended with ${await ended} before ${what}; last ${JSON.stringify(last)}`))
      }
      if (last && predicate(last)) return last
      if (last?.state === 'FAILED') throw new Error(withOutput(`failed before ${what}: ${JSON.stringify(last)}`))
      if (Date.now() > deadline) {
        throw new Error(withOutput(`not ${what} after ${timeoutSeconds} s: ${JSON.stringify(last)}`))
      }
      await delay(pollMs)
    }
  }

  async function stop(): Promise<number | null> {
    const timer = setTimeout(() => void kill('SIGKILL'), stopTimeoutMs)
    await kill('SIGTERM')
    clearTimeout(timer)
    return ended
  }

  try {
    await waitUntilListening()
  } catch (error) {
    await kill()
    throw error
  }
  return {
    url,
    pid,
    post: async (command, body = {}) => {
      const response = await fetch(`${url}/api/v1/${command}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
      return { status: response.status, body: (await response.json()) as CommandAnswer['body'] }
    },
    progress,
    waitFor,
    kill9: () => kill('SIGKILL'),
    stop,
    isRunning,
    output: () => lines.join('\n'),
    [Symbol.asyncDispose]: async () => {
      await stop()
    },
  }
}

/** Starts from cluster0 to cluster1, with verification unless overridden, and insists that the command is accepted. */
export async function startSync(tandem: Tandem, overrides: Record<string, unknown> = {}): Promise<void> {
  const request = { source: 'cluster0', destination: 'cluster1', ...overrides }
  const { status, body } = await tandem.post('start', request)
  if (status !== 200) throw new Error(`start answered ${status} ${JSON.stringify(body)}\n${tandem.output()}`)
}
