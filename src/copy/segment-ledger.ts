import type { Segment } from '../domain/catalogue.ts'
import type { Metadata } from '../mongo/metadata.ts'

/** Progress within segments is stored this often; a crash copies at most this much anew. */
const flushMS = 250

/** Stores the progress of all segments together, a few times a second, instead of once per batch. */
export class SegmentLedger {
  readonly #metadata: Metadata
  #dirty = new Set<Segment>()
  #flushing: Promise<void> = Promise.resolve()
  #timer: NodeJS.Timeout | null = null
  #failure: unknown = null

  constructor(metadata: Metadata) {
    this.#metadata = metadata
  }

  /** The segment's progress, already acknowledged by the destination, is to be stored. */
  note(segment: Segment): void {
    if (this.#failure) throw this.#failure
    this.#dirty.add(segment)
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      this.flush().catch(() => {})
    }, flushMS)
  }

  /** Resolves when everything noted so far is stored by the majority. */
  flush(): Promise<void> {
    this.#flushing = this.#flushing.then(async () => {
      if (this.#failure) throw this.#failure
      const segments = [...this.#dirty].map((segment) => ({ ...segment }))
      this.#dirty = new Set()
      if (segments.length === 0) return
      try {
        await this.#metadata.saveSegments(segments)
      } catch (error) {
        this.#failure = error
        throw error
      }
    })
    return this.#flushing
  }

  async close(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = null
    await this.flush()
  }
}
