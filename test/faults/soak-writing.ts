import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../support/random.ts'
import { createWorkload, type Workload } from '../support/workload.ts'

/** Values of `u` that a cycle's workloads have to themselves. */
const valuesOfOne = 10_000_000

/** Steps a second: the last is more than DDL behind barriers lets two instances follow on a small machine. */
const usualPaces = [8, 25, 80]

/** The application of one cycle: writes at changing paces, and now and then rests, until it is stopped or refused. */
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

  /** Steps, the failed ones too. */
  get operations(): number {
    return this.#paces.map((pace) => pace.summary().steps).reduce((sum, steps) => sum + steps, 0)
  }

  /** Resolves when nothing is being written any more. Rejects when the workload met what it may not meet. */
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
