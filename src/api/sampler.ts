import { KeptPoints } from '../dashboard/kept-points.js'
import { RefusedError } from '../domain/errors.ts'
import type { Instance } from '../domain/instance.ts'
import { totalsOf } from '../domain/instances.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { renderInstances } from './instances-schema.ts'
import { renderProgress } from './progress-schema.ts'
import type { Sample } from './sample-schema.ts'

/** Receives events in their wire format. All listeners receive the same array for a sample, so none may change it. */
export interface Listener {
  send: (event: Uint8Array<ArrayBuffer>) => void
  /** No more events follow. */
  end: () => void
}

export interface SamplerOptions {
  /** Receives unexpected errors. */
  onInternalError: (error: unknown) => void
  everyMS?: number
  /** Milliseconds between samples while nobody listens. */
  unheardMS?: number
  /** Keeps the totals for the history. */
  kept?: KeptPoints
}

/**
 * Takes a sample of the sync once a second for all listeners together. After `record` it also takes one every ten
 * seconds while nobody listens and a sync exists, so that a dashboard that opens later shows what happened before. It
 * keeps the totals for a day, with fewer points for older times. For longer periods, scrape `/metrics`.
 */
export class Sampler {
  readonly #instance: Instance
  readonly #onInternalError: (error: unknown) => void
  readonly #everyMS: number
  readonly #unheardMS: number
  readonly #kept: KeptPoints
  readonly #listeners = new Set<Listener>()
  #isRecording = false
  #latest: Uint8Array<ArrayBuffer> | null = null
  #running = false
  #timer: NodeJS.Timeout | null = null
  #closed = false

  constructor(instance: Instance, options: SamplerOptions) {
    const { onInternalError, everyMS = 1_000, unheardMS = 10_000, kept = new KeptPoints() } = options
    this.#instance = instance
    this.#onInternalError = onInternalError
    this.#everyMS = everyMS
    this.#unheardMS = unheardMS
    this.#kept = kept
  }

  /** From now on until `close`, takes samples even while nobody listens. */
  record(): void {
    this.#isRecording = true
    this.#run()
  }

  /** Sends the history to the listener at once, and then every sample. Returns a function that removes the listener. */
  listen(listener: Listener): () => void {
    if (this.#closed) {
      listener.end()
      return () => {}
    }
    const isFirst = this.#listeners.size === 0
    this.#listeners.add(listener)
    this.#kept.prune(Date.now())
    listener.send(encoded('history', { points: this.#kept.points }))
    // The first listener does not wait for the next sample, which may be due in ten seconds.
    if (isFirst) this.#stopTimer()
    else if (this.#running && this.#latest) listener.send(this.#latest)
    this.#run()
    return () => {
      this.#listeners.delete(listener)
      this.#stopIfUnneeded()
    }
  }

  /** Ends all listeners. A listener that is added later is ended at once. */
  close(): void {
    this.#closed = true
    this.disconnect()
  }

  /** Ends all current listeners; they may reconnect. */
  disconnect(): void {
    for (const listener of this.#listeners) listener.end()
    this.#listeners.clear()
    this.#stopIfUnneeded()
  }

  /** Cancels the next sample if nobody needs it. */
  #stopIfUnneeded(): void {
    if (!this.#isNeeded) this.#stopTimer()
  }

  get #isNeeded(): boolean {
    return !this.#closed && (this.#isRecording || this.#listeners.size > 0)
  }

  #run(): void {
    if (this.#running) return
    this.#running = true
    void this.#sample()
  }

  /** Cancels the next sample. A sample in progress finishes, and the next one follows only if it is needed. */
  #stopTimer(): void {
    if (this.#timer) {
      clearTimeout(this.#timer)
      this.#timer = null
      this.#running = false
    }
  }

  async #sample(): Promise<void> {
    const began = performance.now()
    if (this.#listeners.size > 0 || this.#hasSync()) {
      const sample = await this.#observe()
      this.#latest = encoded('sample', sample)
      this.#remember(sample)
      for (const listener of this.#listeners) listener.send(this.#latest)
    }
    if (!this.#isNeeded) {
      this.#running = false
      return
    }
    // Samples never overlap. If one takes longer than a second, they become less frequent.
    const everyMS = this.#listeners.size > 0 ? this.#everyMS : this.#unheardMS
    const wait = Math.max(0, everyMS - (performance.now() - began))
    this.#timer = setTimeout(() => {
      this.#timer = null
      void this.#sample()
    }, wait)
    this.#timer.unref()
  }

  async #observe(): Promise<Sample> {
    const at = Date.now()
    const nothing = { at, instances: [], totals: totalsOf([]) }
    let progress: Sample['progress'] = null
    try {
      // Read first, because progress is available at once even while the clusters do not answer.
      progress = renderProgress(this.#instance.progress())
      const { instances, totals } = renderInstances(await this.#instance.instances())
      return { at, self: progress.mongosyncID, problem: null, problemError: null, progress, instances, totals }
    } catch (error) {
      const self = progress?.mongosyncID ?? null
      if (error instanceof RefusedError) {
        return { ...nothing, self, progress, problem: redactUris(error.message), problemError: error.refusal }
      }
      this.#onInternalError(error)
      return {
        ...nothing,
        self,
        progress,
        problem:
          'tandem met an unexpected error while it read the state of the sync; see its log. The sync is not affected.',
        problemError: 'InternalError',
      }
    }
  }

  #remember({ at, instances, totals }: Sample): void {
    if (instances.length === 0) return
    const { estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds } = totals
    this.#kept.add([at, estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds])
  }

  /**
   * Returns false before a start: a sample that nobody receives would then only send requests to the clusters. Also
   * returns false after an error, which `#observe` reports once somebody listens.
   */
  #hasSync(): boolean {
    try {
      return this.#instance.progress().state !== 'IDLE'
    } catch {
      return false
    }
  }
}

function encoded(event: string, data: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
}
