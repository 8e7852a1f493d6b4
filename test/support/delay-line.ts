import { Duplex } from 'node:stream'

/** More than a gigabit link holds within a second, so distance alone limits no transfer; a full line holds back the sender. */
const inFlightBytesMax = 128 * 1024 * 1024

/**
 * A stream that emits each chunk `delayMS` after it was written, in order. Any number of chunks are on their way at the same
 * time, so the delay costs latency and no bandwidth. The end of the stream is delayed like a chunk.
 */
export class DelayLine extends Duplex {
  readonly #delayMS: number
  /** A null is the end of the stream. */
  readonly #inFlight: { dueMS: number; chunk: Buffer | null }[] = []
  #inFlightBytes = 0
  #readerWaits = false
  #acceptMore: (() => void) | null = null
  #timer: NodeJS.Timeout | null = null

  constructor(delayMS: number) {
    super()
    this.#delayMS = delayMS
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#send(chunk)
    if (this.#inFlightBytes < inFlightBytesMax) done()
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
    this.#inFlight.push({ dueMS: performance.now() + this.#delayMS, chunk })
    this.#inFlightBytes += chunk?.length ?? 0
    this.#deliver()
  }

  #deliver(): void {
    for (let next = this.#inFlight[0]; next && this.#readerWaits; next = this.#inFlight[0]) {
      const leftMS = next.dueMS - performance.now()
      if (leftMS > 0) {
        this.#timer ??= setTimeout(() => {
          this.#timer = null
          this.#deliver()
        }, Math.ceil(leftMS))
        break
      }
      this.#inFlight.shift()
      this.#inFlightBytes -= next.chunk?.length ?? 0
      // Pushing may ask for the next chunk before it returns. That request must survive.
      this.#readerWaits = false
      if (this.push(next.chunk)) this.#readerWaits = true
    }
    if (this.#acceptMore && this.#inFlightBytes < inFlightBytesMax) {
      const done = this.#acceptMore
      this.#acceptMore = null
      done()
    }
  }
}
