import { setTimeout as sleep } from 'node:timers/promises'
import { median } from './flat.ts'
import { type ProcessFigures, processFigures } from './process-figures.ts'
import type { RunningTeam } from './running-team.ts'

const everyMS = 2_000

/** One process in one leg: medians of what was seen. */
export interface LifeFigures extends ProcessFigures {
  id: string
  pid: number
  /** It ran from the leg's beginning to its end. */
  whole: boolean
  rssMaxMB: number
}

/** Looks at all instances of a team every two seconds of a leg. */
export class SoakWatch {
  readonly #team: RunningTeam
  readonly #stop = new AbortController()
  readonly #seen = new Map<number, { id: string; samples: ProcessFigures[] }>()
  /** Name of the cluster that is the source in this leg. */
  readonly #source: string
  /** What each process said last: it counts from its own beginning, and from a reversal. */
  readonly #applied = new Map<number, number>()
  readonly #atFirst: ReadonlySet<number>
  readonly #done: Promise<void>

  constructor(team: RunningTeam, source: string) {
    this.#team = team
    this.#source = source
    this.#atFirst = new Set(team.ids.map((id) => team.get(id).pid))
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
    const running = new Set(this.#team.ids.map((id) => this.#team.get(id).pid))
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
    await Promise.all(this.#team.ids.map((id) => this.#sampleOne(id)))
  }

  async #sampleOne(id: string): Promise<void> {
    const tandem = this.#team.get(id)
    const figures = processFigures(tandem.pid)
    if (!figures) return
    const { samples } = this.#seen.get(tandem.pid) ?? { samples: [] }
    this.#seen.set(tandem.pid, { id, samples: [...samples, figures] })
    // Not asked while it is stopped, or ends.
    const progress = await Promise.race([tandem.progress(), sleep(everyMS, null)]).catch(() => null)
    // Before the reversal has come it tells of the leg before.
    if (!progress?.directionMapping?.Source.startsWith(`${this.#source}:`)) return
    this.#applied.set(tandem.pid, progress.totalEventsApplied ?? 0)
  }
}
