import { Duplex } from 'node:stream'
import type { LinkPace } from './link-pace.ts'

/**
 * More than a gigabit link carries within a second, so latency alone does not limit a transfer. A full line blocks the
 * sender.
 */
const inFlightBytesMax = 128 * 1024 * 1024
/**
 * With limited bandwidth, a sender is blocked while this many bytes wait for the link. Simulates the buffers of a long
 * path.
 */
const pacedBytesMax = 4 * 1024 * 1024

/** One direction of a link. When it changes, bytes that were sent before still arrive in their order. */
export interface LinkDirection {
  delayMS: number
  /** Null: bandwidth is not limited. */
  pace: LinkPace | null
}

/**
 * A stream that emits each chunk the link's delay after it was written, in order. Any number of chunks can be in flight at the
 * same time, so the delay adds latency but does not reduce bandwidth. The end of the stream is delayed like a chunk.
 * With a `pace`, each chunk first waits until the link has carried it.
 */
export class DelayLine extends Duplex {
  readonly #link: LinkDirection
  /** Chunks that are not delivered yet. A null marks the end of the stream. */
  readonly #inFlight: { dueMS: number; chunk: Buffer | null }[] = []
  #inFlightBytes = 0
  /** When the chunk that was sent last is due. A chunk that is sent later is not due before it. */
  #lastDueMS = 0
  #readerWaits = false
  #acceptMore: (() => void) | null = null
  #timer: NodeJS.Timeout | null = null

  constructor(link: LinkDirection) {
    super()
    this.#link = link
  }

  get #bytesMax(): number {
    return this.#link.pace ? pacedBytesMax : inFlightBytesMax
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#send(chunk)
    if (this.#inFlightBytes < this.#bytesMax) done()
    else this.#acceptMore = done
  }

  override _final(done: () => void): void {
    this.#send(null)
    done()
  }

  override _read(): void {
    this.#readerWaits = true
    this.#deliver()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (this.#timer) clearTimeout(this.#timer)
    done(error)
  }

  #send(chunk: Buffer | null): void {
    const carriedMS = this.#link.pace?.carry(chunk?.length ?? 0) ?? performance.now()
    this.#lastDueMS = Math.max(this.#lastDueMS, carriedMS + this.#link.delayMS)
    this.#inFlight.push({ dueMS: this.#lastDueMS, chunk })
    this.#inFlightBytes += chunk?.length ?? 0
    this.#deliver()
  }

  #deliver(): void {
    for (let next = this.#inFlight[0]; next && this.#readerWaits; next = this.#inFlight[0]) {
      const remainingMS = next.dueMS - performance.now()
      if (remainingMS > 0) {
        this.#timer ??= setTimeout(() => {
          this.#timer = null
          this.#deliver()
        }, Math.ceil(remainingMS))
        break
      }
      this.#inFlight.shift()
      this.#inFlightBytes -= next.chunk?.length ?? 0
      // `push` may request the next chunk before it returns. This flag is reset before the call to keep that request.
      this.#readerWaits = false
      if (this.push(next.chunk)) this.#readerWaits = true
    }
    if (this.#acceptMore && this.#inFlightBytes < this.#bytesMax) {
      const done = this.#acceptMore
      this.#acceptMore = null
      done()
    }
  }
}
