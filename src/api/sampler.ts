import { KeptPoints } from '../dashboard/kept-points.js'
import { RefusedError } from '../domain/errors.ts'
import type { Instance } from '../domain/instance.ts'
import { totalsOf } from '../domain/instances.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { renderInstances } from './instances-schema.ts'
import { renderProgress } from './progress-schema.ts'
import type { Sample } from './sample-schema.ts'

/** Receives encoded server-sent events. All listeners receive the same array for a sample, so none may change it. */
export interface Listener {
  send: (event: Uint8Array<ArrayBuffer>) => void
  /** No more events follow. */
  end: () => void
}

export interface SamplerOptions {
  /** Receives unexpected errors. */
  onInternalError: (error: unknown) => void
  /** Milliseconds between samples while there are listeners. */
  everyMS?: number
  /** Milliseconds between samples while there are no listeners. */
  withoutListenersMS?: number
  /** Stores the totals for the history. */
  kept?: KeptPoints
}

/**
 * While there are listeners, takes a sample of the sync every second and sends it to all of them. After `record`, also
 * takes a sample every ten seconds while there are no listeners and a sync exists, so that a dashboard that is opened
 * later shows what happened before. Keeps the totals for a day, with fewer points for older times. For longer periods,
 * scrape `/metrics`.
 */
export class Sampler {
  readonly #instance: Instance
  readonly #onInternalError: (error: unknown) => void
  readonly #everyMS: number
  readonly #withoutListenersMS: number
  readonly #kept: KeptPoints
  readonly #listeners = new Set<Listener>()
  #isRecording = false
  #latest: Uint8Array<ArrayBuffer> | null = null
  #running = false
  #timer: NodeJS.Timeout | null = null
  #closed = false

  constructor(instance: Instance, options: SamplerOptions) {
    const { onInternalError, everyMS = 1_000, withoutListenersMS = 10_000, kept = new KeptPoints() } = options
    this.#instance = instance
    this.#onInternalError = onInternalError
    this.#everyMS = everyMS
    this.#withoutListenersMS = withoutListenersMS
    this.#kept = kept
  }

  /** From now on until `close`, takes samples even while there are no listeners. */
  record(): void {
    this.#isRecording = true
    this.#run()
  }

  /**
   * Sends the history to the listener at once, and then every sample, beginning with the last one or with a new one that
   * is taken now. Returns a function that removes the listener. After `close`, ends the listener at once.
   */
  listen(listener: Listener): () => void {
    if (this.#closed) {
      listener.end()
      return () => {}
    }
    const isFirst = this.#listeners.size === 0
    this.#listeners.add(listener)
    this.#kept.prune(Date.now())
    listener.send(encoded('history', { points: this.#kept.points }))
    // The first listener gets a new sample at once, because the next one may be due only in ten seconds.
    if (isFirst) this.#stopTimer()
    else if (this.#running && this.#latest) listener.send(this.#latest)
    this.#run()
    return () => {
      this.#listeners.delete(listener)
      this.#stopIfUnneeded()
    }
  }

  /** Stops sampling and ends all listeners. */
  close(): void {
    this.#closed = true
    this.disconnect()
  }

  /** Ends all current listeners. They may reconnect, and recording continues. */
  disconnect(): void {
    for (const listener of this.#listeners) listener.end()
    this.#listeners.clear()
    this.#stopIfUnneeded()
  }

  /** Cancels the next sample if there are no listeners and nothing is recorded. */
  #stopIfUnneeded(): void {
    if (!this.#isNeeded) this.#stopTimer()
  }

  /** True if another sample must follow. */
  get #isNeeded(): boolean {
    return !this.#closed && (this.#isRecording || this.#listeners.size > 0)
  }

  /** Takes a sample now, unless one is in progress or planned. */
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
    // Samples never overlap. If one takes longer than the interval, the next one begins at once.
    const everyMS = this.#listeners.size > 0 ? this.#everyMS : this.#withoutListenersMS
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
      // Progress is read first, because it is available at once even while the clusters do not answer.
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
          'tandem met an unexpected error while it read the state of the sync; the log line "request failed" has the cause. The sync is not affected.',
        problemError: 'InternalError',
      }
    }
  }

  /** Adds the totals of a sample to the history. A sample without instances is left out. */
  #remember({ at, instances, totals }: Sample): void {
    if (instances.length === 0) return
    const { estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds } = totals
    this.#kept.add([at, estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds])
  }

  /**
   * Returns false before a sync is started, because there is nothing to record yet. Also returns false if the progress
   * cannot be read. `#observe` reports that error once there is a listener.
   */
  #hasSync(): boolean {
    try {
      return this.#instance.progress().state !== 'IDLE'
    } catch {
      return false
    }
  }
}

/** Encodes a server-sent event. */
function encoded(event: string, data: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
}
