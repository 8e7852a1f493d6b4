import { setTimeout as sleep } from 'node:timers/promises'
import { median } from './flat.ts'
import { type ProcessFigures, processFigures } from './process-figures.ts'
import type { RunningInstances } from './running-instances.ts'

const everyMS = 2_000

/** One process in one cycle: medians of what was seen. */
export interface LifeFigures extends ProcessFigures {
  id: string
  pid: number
  /** It ran from the cycle's beginning to its end. */
  whole: boolean
  rssMaxMB: number
}

/** Looks at all instances of a sync every two seconds of a cycle. */
export class SoakWatch {
  readonly #instances: RunningInstances
  readonly #stop = new AbortController()
  readonly #seen = new Map<number, { id: string; samples: ProcessFigures[] }>()
  /** Name of the cluster that is the source in this cycle. */
  readonly #source: string
  /** What each process said last: it counts from its own beginning, and from a reversal. */
  readonly #applied = new Map<number, number>()
  readonly #atFirst: ReadonlySet<number>
  readonly #done: Promise<void>

  constructor(instances: RunningInstances, source: string) {
    this.#instances = instances
    this.#source = source
    this.#atFirst = new Set(instances.ids.map((id) => instances.get(id).pid))
    this.#done = this.#look()
    this.#done.catch(() => {})
  }

  /** Events applied, but for what was applied within the last two seconds before a kill. */
  get events(): number {
    return [...this.#applied.values()].reduce((sum, applied) => sum + applied, 0)
  }

  async stop(): Promise<LifeFigures[]> {
    this.#stop.abort()
    await this.#done
    await this.#sample()
    const running = new Set(this.#instances.ids.map((id) => this.#instances.get(id).pid))
    return [...this.#seen].map(([pid, { id, samples }]) => {
      const medianOf = (figure: keyof ProcessFigures): number => median(samples.map((sample) => sample[figure]))
      return {
        id,
        pid,
        whole: this.#atFirst.has(pid) && running.has(pid),
        rssMB: medianOf('rssMB'),
        rssMaxMB: Math.max(...samples.map(({ rssMB }) => rssMB)),
        openFiles: medianOf('openFiles'),
        sockets: medianOf('sockets'),
        threads: medianOf('threads'),
      }
    })
  }

  async #look(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#sample()
      await sleep(everyMS, undefined, { signal: this.#stop.signal }).catch(() => {})
    }
  }

  async #sample(): Promise<void> {
    await Promise.all(this.#instances.ids.map((id) => this.#sampleOne(id)))
  }

  async #sampleOne(id: string): Promise<void> {
    const tandem = this.#instances.get(id)
    const figures = processFigures(tandem.pid)
    if (!figures) return
    const { samples } = this.#seen.get(tandem.pid) ?? { samples: [] }
    this.#seen.set(tandem.pid, { id, samples: [...samples, figures] })
    // Not asked while it is stopped, or ends.
    const progress = await Promise.race([tandem.progress(), sleep(everyMS, null)]).catch(() => null)
    // Before the reversal has begun, it describes the previous cycle.
    if (!progress?.directionMapping?.Source.startsWith(`${this.#source}:`)) return
    this.#applied.set(tandem.pid, progress.totalEventsApplied ?? 0)
  }
}
