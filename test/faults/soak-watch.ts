import { setTimeout as sleep } from 'node:timers/promises'
import { median } from './flat.ts'
import { type ProcessFigures, processFigures } from './process-figures.ts'
import type { RunningInstances } from './running-instances.ts'

const everyMS = 2_000
/** Length of the periods of `rssCourseMB`. */
const periodMS = 5 * 60_000

/** One process in one cycle: medians of its samples. */
export interface ProcessCycleFigures extends ProcessFigures {
  id: string
  pid: number
  /** Whether the process ran from the cycle's beginning to its end. */
  whole: boolean
  rssMaxMB: number
  /** Medians of resident memory over full periods of five minutes, in order. */
  rssCourseMB: number[]
}

interface Sample extends ProcessFigures {
  /** Time of the sample by `performance.now()`. */
  at: number
}

/** Samples all instances of a sync every two seconds during a cycle. */
export class SoakWatch {
  readonly #instances: RunningInstances
  readonly #stop = new AbortController()
  readonly #samples = new Map<number, { id: string; samples: Sample[] }>()
  /** Name of the cluster that is the source in this cycle. */
  readonly #source: string
  /** The last `totalEventsApplied` by pid. A process counts from its own start, and from a reversal. */
  readonly #applied = new Map<number, number>()
  readonly #initialPids: ReadonlySet<number>
  readonly #done: Promise<void>

  constructor(instances: RunningInstances, source: string) {
    this.#instances = instances
    this.#source = source
    this.#initialPids = new Set(instances.ids.map((id) => instances.get(id).pid))
    this.#done = this.#poll()
    this.#done.catch(() => {})
  }

  /** Number of events applied, except those applied in the last two seconds before a kill. */
  get events(): number {
    return [...this.#applied.values()].reduce((sum, applied) => sum + applied, 0)
  }

  async stop(): Promise<ProcessCycleFigures[]> {
    this.#stop.abort()
    await this.#done
    await this.#sample()
    const running = new Set(this.#instances.ids.map((id) => this.#instances.get(id).pid))
    return [...this.#samples].map(([pid, { id, samples }]) => {
      const medianOf = (figure: keyof ProcessFigures): number => median(samples.map((sample) => sample[figure]))
      return {
        id,
        pid,
        whole: this.#initialPids.has(pid) && running.has(pid),
        rssMB: medianOf('rssMB'),
        rssMaxMB: Math.max(...samples.map(({ rssMB }) => rssMB)),
        rssCourseMB: courseOf(samples),
        openFiles: medianOf('openFiles'),
        sockets: medianOf('sockets'),
        threads: medianOf('threads'),
      }
    })
  }

  async #poll(): Promise<void> {
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
    const { samples } = this.#samples.get(tandem.pid) ?? { samples: [] }
    this.#samples.set(tandem.pid, { id, samples: [...samples, { ...figures, at: performance.now() }] })
    // A process that is suspended or ending does not answer.
    const progress = await Promise.race([tandem.progress(), sleep(everyMS, null)]).catch(() => null)
    // Before the reversal has begun, progress describes the previous cycle.
    if (!progress?.directionMapping?.Source.startsWith(`${this.#source}:`)) return
    this.#applied.set(tandem.pid, progress.totalEventsApplied ?? 0)
  }
}

function courseOf(samples: readonly Sample[]): number[] {
  const [first, last] = [samples[0], samples.at(-1)]
  if (!first || !last) return []
  const periods = Math.floor((last.at - first.at) / periodMS)
  return Array.from({ length: periods }, (_, period) => {
    const from = first.at + period * periodMS
    return median(samples.filter(({ at }) => at >= from && at < from + periodMS).map(({ rssMB }) => rssMB))
  })
}
