import type { Document } from 'mongodb'
import { type Deferred, deferred } from '../domain/deferred.ts'
import { isNotAfter, type StreamBatch, type StreamPosition } from './change-stream.ts'

/**
 * Takes one batch synchronously. Returns false when the reader cannot take the batch. Its share then ends before the
 * batch.
 */
export type TakeBatch = (batch: StreamBatch) => boolean

/** A reader's access to the published batches. */
export interface Share {
  /** True once a batch was published after the reader joined, even a batch that the reader already had. */
  readonly answered: boolean
  /** Resolves when no further batch follows, with the error that the reader's `take` threw, or with null. */
  ended: Promise<unknown>
  leave(): void
}

/** The stream owner's means to publish batches. */
export interface Publication {
  /** Called with every batch right after it was read, before it is used for anything. Never throws. */
  publish(batch: StreamBatch): void
  end(): void
}

interface Reader {
  /** The reader has every event up to this position. Null once a published batch has passed it. */
  joinedAt: StreamPosition | null
  answered: boolean
  take: TakeBatch
  ended: Deferred<unknown>
}

/**
 * Passes the batches of one change stream, as the server sent them, to a second reader in the same process, so that the
 * server need not produce every event twice. Nothing is buffered: the reader takes a batch when it is published, or
 * leaves.
 *
 * The reader gets every event after its own position, because
 * - it may join only while the next batch begins at its position or earlier (`isNotAfter`);
 * - the batches of one publication follow each other without a gap, and a reader that misses one is removed;
 * - a reader never passes from one publication to the next, which begins at another position, but must join again;
 * - both streams have the same events: joining requires the same condition for events, and a stream that is limited to
 *   some partitions must not be published.
 */
export class SharedStream {
  #current: { next: StreamPosition; selected: Document | null } | null = null
  #reader: Reader | null = null
  #publications = 0

  /** The number of publications that have begun so far. */
  get publications(): number {
    return this.#publications
  }

  /**
   * Begins to publish a stream. An earlier publication ends.
   * @param start where the stream is opened
   * @param selected its condition for events
   */
  publish(start: StreamPosition, selected: Document | null): Publication {
    const publication = { next: start, selected }
    this.#remove()
    this.#current = publication
    this.#publications += 1
    return {
      publish: (batch) => {
        if (this.#current !== publication) return
        publication.next = batch.position
        this.#pass(batch)
      },
      end: () => {
        if (this.#current !== publication) return
        this.#current = null
        this.#remove()
      },
    }
  }

  /**
   * Joins a reader that has all events up to `position`. The reader gets every batch that ends after that position. It
   * replaces an earlier reader. Returns null when nothing is published, when the published stream has another condition
   * for events, or when the next published batch would leave a gap.
   */
  join(position: StreamPosition, selected: Document | null, take: TakeBatch): Share | null {
    const current = this.#current
    if (!current || current.selected !== selected || !isNotAfter(current.next, position)) return null
    this.#remove()
    const reader: Reader = { joinedAt: position, answered: false, take, ended: deferred<unknown>() }
    this.#reader = reader
    return {
      get answered() {
        return reader.answered
      },
      ended: reader.ended.promise,
      leave: () => {
        if (this.#reader === reader) this.#remove()
      },
    }
  }

  #pass(batch: StreamBatch): void {
    const reader = this.#reader
    if (!reader) return
    reader.answered = true
    if (reader.joinedAt && isNotAfter(batch.position, reader.joinedAt)) return
    reader.joinedAt = null
    try {
      if (!reader.take(batch) && this.#reader === reader) this.#remove()
    } catch (error) {
      // The error concerns only the reader. The owner of the stream continues.
      this.#remove(error)
    }
  }

  #remove(failure: unknown = null): void {
    this.#reader?.ended.resolve(failure)
    this.#reader = null
  }
}
