import pLimit from 'p-limit'
import type { Segment } from '../domain/catalog.ts'
import type { OwnerToken } from '../domain/owner.ts'
import type { SegmentStore } from '../mongo/segment-store.ts'

/**
 * Interval for storing the progress of segments. After a crash, a segment that can be resumed is copied again from its last
 * stored progress.
 */
const flushMS = 250

/** Stores the progress of all segments together, a few times per second instead of once per batch. */
export class SegmentProgress {
  readonly #store: SegmentStore
  readonly #owner: OwnerToken
  #dirty = new Set<Segment>()
  readonly #flushes = pLimit(1)
  #timer: NodeJS.Timeout | null = null
  #failure: unknown = null

  constructor(store: SegmentStore, owner: OwnerToken) {
    this.#store = store
    this.#owner = owner
  }

  /** Schedules the write of a segment's progress. The destination must have acknowledged its documents already. */
  record(segment: Segment): void {
    if (this.#failure) throw this.#failure
    this.#dirty.add(segment)
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      this.flush().catch(() => {})
    }, flushMS)
  }

  /** Resolves when everything recorded so far is majority-committed. */
  flush(): Promise<void> {
    return this.#flushes(async () => {
      if (this.#failure) throw this.#failure
      const segments = [...this.#dirty].map((segment) => ({ ...segment }))
      this.#dirty = new Set()
      if (segments.length === 0) return
      try {
        await this.#store.saveProgress(segments, this.#owner)
      } catch (error) {
        this.#failure = error
        throw error
      }
    })
  }

  async close(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = null
    await this.flush()
  }
}
