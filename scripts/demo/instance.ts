import { setTimeout as sleep } from 'node:timers/promises'
import type { Progress } from '../../src/domain/progress.ts'
import { startTandem, type Tandem } from '../../test/support/tandem-process.ts'

const pollMS = 25

/**
 * The tandem program as its users run it. After the demo has killed the process, `start` starts another one, and all
 * methods then refer to that process.
 */
export class Instance {
  readonly #clusters: { cluster0: string; cluster1: string }
  #tandem: Tandem | null = null
  #eventsBefore = 0
  #events = 0

  constructor(cluster0: string, cluster1: string) {
    this.#clusters = { cluster0, cluster1 }
  }

  /** Resolves when the process answers HTTP. Poll `progress` to learn whether it is connected to its clusters. */
  async start(): Promise<void> {
    this.#tandem = await startTandem({ ...this.#clusters, extraArgs: ['--verbosity', 'info'] })
  }

  get url(): string {
    return this.#running.url
  }

  get pid(): number {
    return this.#running.pid
  }

  /**
   * Events applied by all processes. `totalEventsApplied` counts only those of the current process, so the last value of
   * each earlier process is added.
   */
  get events(): number {
    return this.#eventsBefore + this.#events
  }

  /** The latest output of the program, for a report of its failure. */
  get output(): string {
    return this.#tandem?.output() ?? ''
  }

  async command(name: string, body: unknown = {}): Promise<void> {
    const answer = await this.#running.post(name, body)
    if (answer.status !== 200) throw new Error(`${name} answered ${answer.status} ${JSON.stringify(answer.body)}`)
  }

  /** Returns the sync's progress, or null while the instance cannot reach its clusters yet. */
  async progress(): Promise<Progress | null> {
    const response = await fetch(`${this.url}/api/v1/progress`)
    const body = (await response.json()) as { error?: string; progress?: Progress }
    if (body.error === 'ClusterUnreachable') return null
    if (!body.progress) throw new Error(`progress answered ${response.status} ${JSON.stringify(body)}`)
    this.#events = body.progress.totalEventsApplied ?? 0
    return body.progress
  }

  /**
   * Polls until the predicate holds and passes every answer to `onProgress`. It throws if the sync fails or the process
   * exits.
   */
  async until(
    predicate: (progress: Progress) => boolean,
    options: { what: string; timeoutSeconds: number; onProgress: (progress: Progress) => void },
  ): Promise<Progress> {
    const deadline = Date.now() + options.timeoutSeconds * 1000
    for (;;) {
      if (!this.#running.isRunning()) throw new Error(`tandem exited before it was ${options.what}`)
      const progress = await this.progress()
      if (progress) {
        options.onProgress(progress)
        if (predicate(progress)) return progress
        if (progress.state === 'FAILED') throw new Error(`the sync failed: ${JSON.stringify(progress.failure)}`)
      }
      if (Date.now() > deadline) throw new Error(`tandem is not ${options.what} after ${options.timeoutSeconds} s`)
      await sleep(pollMS)
    }
  }

  async kill9(): Promise<void> {
    await this.#running.kill9()
    this.#eventsBefore += this.#events
    this.#events = 0
  }

  /** Sends SIGTERM, as an operator does. Returns the exit code; null if the process had to be killed or was not running. */
  async stop(): Promise<number | null> {
    const tandem = this.#tandem
    this.#tandem = null
    return (await tandem?.stop()) ?? null
  }

  get #running(): Tandem {
    if (!this.#tandem) throw new Error('tandem is not running')
    return this.#tandem
  }
}
