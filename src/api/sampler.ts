import { RefusedError } from '../domain/errors.ts'
import type { Instance } from '../domain/instance.ts'
import { totalsOf } from '../domain/instances.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { renderInstances } from './instances-schema.ts'
import { renderProgress } from './progress-schema.ts'
import type { HistoryPoint, Sample } from './sample-schema.ts'

/** Receives events. Each event is in its wire format, in one array that all listeners share. */
export interface Listener {
  send: (event: Uint8Array<ArrayBuffer>) => void
  /** No more events follow. */
  end: () => void
}

export interface SamplerOptions {
  /** Receives unexpected errors. */
  onInternalError: (error: unknown) => void
  everyMS?: number
  /** Milliseconds for which totals are kept. */
  keptMS?: number
}

/**
 * Takes a sample of the sync once a second for all listeners together, and none while there are no listeners, so a
 * closed dashboard costs nothing. It keeps the totals for ten minutes, so a dashboard that opens later shows the
 * samples taken for other listeners, with gaps where there were no listeners. For longer periods, scrape `/metrics`.
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

  /** Sends the history to the listener at once, then every sample. Returns a function that stops it. */
  listen(listener: Listener): () => void {
    if (this.#closed) {
      listener.end()
      return () => {}
    }
    this.#listeners.add(listener)
    this.#prune(Date.now())
    listener.send(encoded('history', { points: this.#history }))
    if (this.#running && this.#latest) listener.send(this.#latest)
    this.#run()
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size === 0) this.#stopTimer()
    }
  }

  /** Ends all listeners, and later ones as soon as they listen. */
  close(): void {
    this.#closed = true
    this.disconnect()
  }

  /** Ends all current listeners; they may reconnect. */
  disconnect(): void {
    this.#stopTimer()
    for (const listener of this.#listeners) listener.end()
    this.#listeners.clear()
  }

  #run(): void {
    if (this.#running) return
    this.#running = true
    void this.#sample()
  }

  /** Cancels the next sample. A sample in progress finishes and then finds no listener. */
  #stopTimer(): void {
    if (this.#timer) {
      clearTimeout(this.#timer)
      this.#timer = null
      this.#running = false
    }
  }

  async #sample(): Promise<void> {
    const began = performance.now()
    const sample = await this.#observe()
    this.#latest = encoded('sample', sample)
    this.#remember(sample)
    for (const listener of this.#listeners) listener.send(this.#latest)
    if (this.#closed || this.#listeners.size === 0) {
      this.#running = false
      return
    }
    // Samples never overlap. If one takes longer than a second, they become less frequent.
    const wait = Math.max(0, this.#everyMS - (performance.now() - began))
    this.#timer = setTimeout(() => {
      this.#timer = null
      void this.#sample()
    }, wait)
    this.#timer.unref()
  }

  async #observe(): Promise<Sample> {
    const at = Date.now()
    const nothing = { at, self: null, problem: null, progress: null, instances: [], totals: totalsOf([]) }
    let progress: Sample['progress'] = null
    try {
      // Read first, because progress is available at once even while the clusters do not answer.
      progress = renderProgress(this.#instance.progress())
      const { instances, totals } = renderInstances(await this.#instance.instances())
      return { at, self: progress.mongosyncID, problem: null, progress, instances, totals }
    } catch (error) {
      const self = progress?.mongosyncID ?? null
      if (error instanceof RefusedError) return { ...nothing, self, progress, problem: redactUris(error.message) }
      this.#onInternalError(error)
      return {
        ...nothing,
        self,
        progress,
        problem:
          'tandem met an unexpected error while it read the state of the sync; see its log. The sync is not affected.',
      }
    }
  }

  #remember({ at, instances, totals }: Sample): void {
    if (instances.length === 0) return
    const { estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds } = totals
    this.#history.push([at, estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds])
    this.#prune(at)
  }

  #prune(now: number): void {
    const first = this.#history.findIndex(([at]) => at >= now - this.#keptMS)
    this.#history.splice(0, first === -1 ? this.#history.length : first)
  }
}

function encoded(event: string, data: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
}
