import { existsSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Progress } from '../../src/domain/progress.ts'
import { claimPorts } from './free-ports.ts'
import { spawnGuarded } from './guarded-process.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { inPod, pidOutside } from './pod.ts'
import { environment, linesOf, type ProgramRun } from './program-run.ts'
import { areHostsKept, runInHost } from './tandem-hosts.ts'

const listenTimeoutMs = 60_000
const stopTimeoutMs = 20_000
const pollMs = 50
const endedGraceMs = 2_000
/** Enough lines to show what led to a failure, and few enough for a test report. */
const outputLinesMax = 400
const outputLinesInErrors = 40

export interface TandemOptions {
  cluster0: string
  cluster1: string
  id?: string
  extraArgs?: string[]
  /** HTTP port; by default a free one. */
  port?: number
  env?: Record<string, string>
  /** Path of the program to run, relative to the repository's root. */
  entry?: string
  /** Faults to inject into the built program. */
  faults?: Faults
  /** Host name of the pod in which the program is pid 1; by default it is an ordinary process. */
  pod?: string
}

/** Faults of `faulty-tandem.mjs`, which runs instead of the program if there are any. */
export interface Faults {
  /** A step of a commit or a reversal at which the process is killed with SIGKILL. */
  crashAt?: string
  /** A namespace whose document events are dropped before they are applied. */
  dropEventsOf?: string
  /** The number of differences above which a repair converges collections. */
  repairAtMost?: number
  /** File with the milliseconds by which the process's monotonic clock is behind, as after a suspension of the machine. */
  stoodStill?: string
}

export interface CommandAnswer {
  status: number
  body: { success?: boolean; error?: string; errorDescription?: string; [field: string]: unknown }
}

export interface Tandem extends AsyncDisposable {
  /** URL without a path: `http://127.0.0.1:<port>`. */
  url: string
  pid: number
  /** Sends `POST /api/v1/<command>`; the body is `{}` by default. */
  post(command: string, body?: unknown): Promise<CommandAnswer>
  progress(): Promise<Progress>
  /**
   * Polls the progress until the predicate holds. Throws if the state is FAILED and the predicate does not hold, or if
   * the process exits.
   */
  waitFor(
    predicate: (progress: Progress) => boolean,
    options: { timeoutSeconds: number; what: string },
  ): Promise<Progress>
  kill9(): Promise<void>
  /** Sends SIGTERM, and SIGKILL if the process does not exit in time. Returns the exit code, or null after a signal. */
  stop(): Promise<number | null>
  isRunning(): boolean
  /** Returns the last lines of stdout and stderr in the order in which they arrived. */
  output(): string
}

/** Starts the command-line program as its users run it, in a process that ends with this one. */
export async function startTandem(options: TandemOptions): Promise<Tandem> {
  const { crashAt, dropEventsOf, repairAtMost, stoodStill } = options.faults ?? {}
  const faults = {
    ...(crashAt && { FAULT_CRASH_AT: crashAt }),
    ...(dropEventsOf && { FAULT_DROP_EVENTS_OF: dropEventsOf }),
    ...(repairAtMost && { FAULT_REPAIR_AT_MOST: String(repairAtMost) }),
    ...(stoodStill && { FAULT_STOOD_STILL: stoodStill }),
  }
  const isFaulty = Object.keys(faults).length > 0
  const built = path.resolve(repositoryRoot, options.entry ?? 'dist/main.js')
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
  const lines: string[] = []
  const onLine = (line: string): void => {
    lines.push(line)
    lines.splice(0, lines.length - outputLinesMax)
  }
  const run = canBeHosted(options, isFaulty)
    ? runInHost(entry, args, onLine)
    : await runAlone([process.execPath, entry, ...args], { ...options, env: { ...faults, ...options.env }, onLine })
  const { pid, ended, isRunning, kill } = run
  void ended.then(() => claimed?.release())

  const withOutput = (message: string) =>
    `${message}\n--- output of tandem ${pid}:\n${lines.slice(-outputLinesInErrors).join('\n')}`

  async function readProgress(): Promise<{ status: number; progress: Progress | null; text: string }> {
    const response = await fetch(`${url}/api/v1/progress`)
    const text = await response.text()
    return { status: response.status, progress: (JSON.parse(text) as { progress?: Progress }).progress ?? null, text }
  }

  async function progress(): Promise<Progress> {
    const answer = await readProgress()
    if (answer.status !== 200 || !answer.progress) {
      throw new Error(withOutput(`progress answered ${answer.status} ${answer.text}`))
    }
    return answer.progress
  }

  async function waitUntilListening(): Promise<void> {
    const deadline = Date.now() + listenTimeoutMs
    for (;;) {
      if (!isRunning()) throw new Error(withOutput(`tandem exited with ${await ended} before it listened`))
      const response = await fetch(`${url}/api/v1/progress`).catch(() => null)
      if (response) {
        await response.arrayBuffer()
        return
      }
      if (Date.now() > deadline) throw new Error(withOutput(`tandem does not listen after ${listenTimeoutMs / 1000} s`))
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
        const answer = await readProgress()
        // 503 means that the instance is still connecting to its clusters, for example right after a restart.
        if (answer.status !== 503) last = answer.progress
      } catch (error) {
        // An exiting process closes its connections before this process observes its exit.
        await Promise.race([ended, delay(endedGraceMs)])
        if (isRunning()) throw error
      }
      if (!isRunning()) {
        throw new Error(
          withOutput(
            `tandem exited with ${await ended} while the test waited for: ${what}; last progress: ${JSON.stringify(last)}`,
          ),
        )
      }
      if (last && predicate(last)) return last
      if (last?.state === 'FAILED')
        throw new Error(
          withOutput(`the sync failed while the test waited for: ${what}; last progress: ${JSON.stringify(last)}`),
        )
      if (Date.now() > deadline) {
        throw new Error(withOutput(`waited ${timeoutSeconds} s for: ${what}; last progress: ${JSON.stringify(last)}`))
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
    await kill('SIGKILL')
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

/**
 * True if the instance may run in a process that has run others. The environment belongs to a process, and
 * `--exitOnFailure` ends it a while after the failure.
 */
function canBeHosted({ env, pod, extraArgs = [] }: TandemOptions, isFaulty: boolean): boolean {
  return areHostsKept() && !isFaulty && !env && !pod && !extraArgs.includes('--exitOnFailure')
}

/** Runs the program in a process of its own. */
async function runAlone(
  commandLine: string[],
  { env, pod, onLine }: Pick<TandemOptions, 'env' | 'pod'> & { onLine: (line: string) => void },
): Promise<ProgramRun> {
  const [command = '', args] = pod ? inPod(pod, commandLine) : [commandLine[0], commandLine.slice(1)]
  const spawned = spawnGuarded(command, args, {
    cwd: repositoryRoot,
    env: { ...environment(), ...env },
    output: 'pipe',
  })
  const { child, ended, isRunning } = spawned
  for (const stream of [child.stdout, child.stderr]) linesOf(stream, onLine)
  const pid = pod ? await pidOutside(spawned.pid) : spawned.pid
  const kill = async (signal: NodeJS.Signals): Promise<void> => {
    if (isRunning() && pid !== spawned.pid) process.kill(pid, signal)
    else await spawned.kill(signal)
    await ended
  }
  return { pid, ended, isRunning, kill }
}

/** Starts a sync from cluster0 to cluster1, by default with verification, and throws unless the command is accepted. */
export async function startSync(tandem: Tandem, overrides: Record<string, unknown> = {}): Promise<void> {
  const request = { source: 'cluster0', destination: 'cluster1', ...overrides }
  const { status, body } = await tandem.post('start', request)
  if (status !== 200) throw new Error(`start answered ${status} ${JSON.stringify(body)}\n${tandem.output()}`)
}
