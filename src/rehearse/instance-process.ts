import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { RehearsalFailure } from './rehearsal-failure.ts'

const startTimeoutMS = 60_000
const stopTimeoutMS = 20_000
const linesMax = 20

export interface CommandRefusal {
  error?: string
  errorDescription?: string
}

/** An instance of tandem in a child process, which `stop` or `kill` ends. */
export class InstanceProcess {
  readonly id: string
  readonly #child: ChildProcess
  readonly #ended: Promise<unknown>
  #url: string | null = null
  readonly #lines: string[] = []

  /** The connection strings are passed in the environment, because an argument list is visible to all users. */
  constructor(id: string, clusters: Record<'cluster0' | 'cluster1', string>) {
    this.id = id
    const main = fileURLToPath(new URL('../main.js', import.meta.url))
    this.#child = spawn(process.execPath, [main, '--id', id, '--port', '0'], {
      env: { ...ownEnvironment(), TANDEM_CLUSTER0: clusters.cluster0, TANDEM_CLUSTER1: clusters.cluster1 },
      // The instance ends when this channel closes, which it does even if this process is killed.
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    })
    this.#ended = once(this.#child, 'close').catch((error) => this.#onLine(String(error)))
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#onLine(line))
    }
  }

  get isRunning(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** Resolves when the process answers requests. */
  async listening(signal: AbortSignal): Promise<void> {
    const deadline = performance.now() + startTimeoutMS
    while (this.#url === null) {
      if (!this.isRunning) throw new RehearsalFailure(`the instance ${this.id} has ended:\n${this.lastLines}`)
      if (performance.now() > deadline) throw new RehearsalFailure(`the instance ${this.id} does not listen`)
      await sleep(50, undefined, { signal })
    }
  }

  async get<T>(path: string): Promise<T> {
    const response = await fetch(`${this.#url}/api/v1/${path}`)
    return (await response.json()) as T
  }

  /** Sends a command. Returns the refusal; null if the command is accepted. */
  async post(command: string, body: object): Promise<CommandRefusal | null> {
    const headers = { 'content-type': 'application/json' }
    const request = { method: 'POST', headers, body: JSON.stringify(body) }
    const response = await fetch(`${this.#url}/api/v1/${command}`, request)
    const answer = (await response.json()) as { success: boolean } & CommandRefusal
    return answer.success ? null : answer
  }

  async kill(): Promise<void> {
    if (this.isRunning) this.#child.kill('SIGKILL')
    await this.#ended
  }

  /** Sends SIGTERM, and SIGKILL if the process does not end in time. */
  async stop(): Promise<void> {
    if (!this.isRunning) return
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), stopTimeoutMS)
    this.#child.kill('SIGTERM')
    await this.#ended
    clearTimeout(timer)
  }

  /** The last lines of the instance's log, for the report of a failure. */
  get lastLines(): string {
    return this.#lines.join('\n')
  }

  #onLine(line: string): void {
    this.#lines.push(line)
    if (this.#lines.length > linesMax) this.#lines.shift()
    if (this.#url !== null || !line.includes('"message":"listening"')) return
    const port = /"port":(\d+)/.exec(line)?.[1]
    if (port) this.#url = `http://127.0.0.1:${port}`
  }
}

/** Returns the environment without the operator's tandem settings, such as a token, TLS files, a log file or a Redis. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TANDEM_')))
}
