import { RefusedError } from '../domain/errors.ts'
import type { Instance } from '../domain/instance.ts'
import { totalsOf } from '../domain/instances.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { renderInstances } from './instances-schema.ts'
import { renderProgress } from './progress-schema.ts'
import type { HistoryPoint, Sample } from './sample-schema.ts'

/** Who is told. Both are called with an event as it goes over the wire, one array for all listeners. */
export interface Listener {
  hear: (event: Uint8Array<ArrayBuffer>) => void
  /** There is nothing more to come. */
  end: () => void
}

export interface SamplerOptions {
  /** Told of errors that are nobody's refusal. */
  onInternalError: (error: unknown) => void
  everyMS?: number
  /** How long totals are remembered. */
  keptMS?: number
}

/**
 * Looks how the sync is once a second, once for all listeners, and not at all while there are none: so a dashboard that is
 * closed costs nothing. What was seen is remembered for ten minutes, so whoever opens it again sees what others
 * watched, and gaps where nobody did. A longer memory is what `/metrics` is for.
 */
export class Sampler {
  readonly #instance: Instance
  readonly #onInternalError: (error: unknown) => void
  readonly #everyMS: number
  readonly #keptMS: number
  readonly #listeners = new Set<Listener>()
  readonly #history: HistoryPoint[] = []
  #latest: Uint8Array<ArrayBuffer> | null = null
  #running = false
  #timer: NodeJS.Timeout | null = null
  #closed = false

  constructor(instance: Instance, { onInternalError, everyMS = 1_000, keptMS = 10 * 60_000 }: SamplerOptions) {
    this.#instance = instance
    this.#onInternalError = onInternalError
    this.#everyMS = everyMS
    this.#keptMS = keptMS
  }

  /** The listener hears the history at once, then every sample. Returns how it stops listening. */
  listen(listener: Listener): () => void {
    if (this.#closed) {
      listener.end()
      return () => {}
    }
    this.#listeners.add(listener)
    this.#forget(Date.now())
    listener.hear(encoded('history', { points: this.#history }))
    if (this.#running && this.#latest) listener.hear(this.#latest)
    this.#run()
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size === 0) this.#rest()
    }
  }

  /** Ends every listener, and whoever comes later. */
  close(): void {
    this.#closed = true
    this.disconnect()
  }

  /** Ends every listener there is; they may come back. */
  disconnect(): void {
    this.#rest()
    for (const listener of this.#listeners) listener.end()
    this.#listeners.clear()
  }

  #run(): void {
    if (this.#running) return
    this.#running = true
    void this.#sample()
  }

  /** A look under way goes on, and its end finds that nobody waits for it. */
  #rest(): void {
    if (this.#timer) {
      clearTimeout(this.#timer)
      this.#timer = null
      this.#running = false
    }
  }

  async #sample(): Promise<void> {
    const began = performance.now()
    const sample = await this.#take()
    this.#latest = encoded('sample', sample)
    this.#remember(sample)
    for (const listener of this.#listeners) listener.hear(this.#latest)
    if (this.#closed || this.#listeners.size === 0) {
      this.#running = false
      return
    }
    // Never two looks at a time: where one takes longer than a second, samples come less often.
    const wait = Math.max(0, this.#everyMS - (performance.now() - began))
    this.#timer = setTimeout(() => {
      this.#timer = null
      void this.#sample()
    }, wait)
    this.#timer.unref()
  }

  async #take(): Promise<Sample> {
    const at = Date.now()
    const nothing = { at, self: null, problem: null, progress: null, instances: [], totals: totalsOf([]) }
    let progress: Sample['progress'] = null
    try {
      // Asked first: it answers at once also while the clusters do not.
      progress = renderProgress(this.#instance.progress())
      const { instances, totals } = renderInstances(await this.#instance.instances())
      return { at, self: progress.mongosyncID, problem: null, progress, instances, totals }
    } catch (error) {
      const self = progress?.mongosyncID ?? null
      if (error instanceof RefusedError) return { ...nothing, self, progress, problem: redactUris(error.message) }
      this.#onInternalError(error)
      return { ...nothing, self, progress, problem: 'tandem met an unexpected error; its log tells which' }
    }
  }

  #remember({ at, instances, totals }: Sample): void {
    if (instances.length === 0) return
    const { estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds } = totals
    this.#history.push([at, estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds])
    this.#forget(at)
  }

  #forget(now: number): void {
    const first = this.#history.findIndex(([at]) => at >= now - this.#keptMS)
    this.#history.splice(0, first === -1 ? this.#history.length : first)
  }
}

function encoded(event: string, data: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
}
