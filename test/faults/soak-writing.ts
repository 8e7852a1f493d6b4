import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../support/random.ts'
import { createWorkload, type Workload } from '../support/workload.ts'

/** Size of the range of values of `u` that is reserved for each workload. */
const valuesOfOne = 10_000_000

/** Steps per second. On a small machine, two instances cannot keep up with the last rate, because DDL waits at barriers. */
const usualPaces = [8, 25, 80]

/** The application of one cycle. It writes at changing rates, with pauses, until it is stopped or its writes are refused. */
export class Writing {
  readonly #paces: Workload[]
  readonly #random: Random
  readonly #stop = new AbortController()
  readonly #done: Promise<void>

  /** @param cycle counted from 0 */
  constructor(uri: string, seed: string, cycle: number, random: Random, paces: readonly number[] = usualPaces) {
    this.#random = random
    this.#paces = paces.map((opsPerSecond, at, all) =>
      createWorkload({
        uri,
        seed: `${seed}, ${opsPerSecond} a second`,
        ddl: true,
        transactions: true,
        opsPerSecond,
        sequenceFrom: (cycle * all.length + at) * valuesOfOne,
      }),
    )
    this.#done = this.#write()
    this.#done.catch(() => {})
  }

  /** Number of steps, including failed ones. */
  get operations(): number {
    return this.#paces.map((pace) => pace.summary().steps).reduce((sum, steps) => sum + steps, 0)
  }

  /** Resolves when the application no longer writes. Rejects if the workload met an unexpected error. */
  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#done
  }

  async #write(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted && !this.#paces.some((pace) => pace.summary().blocked)) {
      const milliseconds = this.#random.int(3_000, 15_000)
      if (this.#random.chance(0.2)) await sleep(milliseconds, undefined, { signal }).catch(() => {})
      else await this.#random.pick(this.#paces).run(AbortSignal.any([signal, AbortSignal.timeout(milliseconds)]))
    }
  }
}
