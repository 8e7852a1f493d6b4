import type { MongoClient } from 'mongodb'
import { Workload } from './workload.ts'

const writerCount = 2
const writerPauseMS = 20

/** Workloads that run at the same time on one cluster until they are stopped. */
export class Writers {
  readonly #workloads: Workload[]
  readonly #stopping = new AbortController()
  readonly #ended: Promise<unknown>

  /** Starts to write at once. An abort of the signal stops the workloads too. */
  constructor(
    { client, databases, seed }: { client: MongoClient; databases: readonly string[]; seed: number },
    signal: AbortSignal,
  ) {
    this.#workloads = Array.from(
      { length: writerCount },
      (_, writer) => new Workload({ client, databases, seed: seed + writer, pauseMS: writerPauseMS }),
    )
    const until = AbortSignal.any([signal, this.#stopping.signal])
    this.#ended = Promise.all(this.#workloads.map((one) => one.run(until)))
    // This avoids an unhandled rejection. A failure of a workload is thrown by `stop`.
    this.#ended.catch(() => {})
  }

  /** Resolves when nothing more is written. Throws the failure of a workload, if there is one. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#ended
  }

  /** Number of all steps so far, and number of those that the cluster refused. */
  get steps(): { steps: number; refused: number } {
    const refused = this.#workloads.reduce((sum, one) => sum + one.steps.refused, 0)
    return { steps: this.#workloads.reduce((sum, one) => sum + one.steps.done, refused), refused }
  }
}
