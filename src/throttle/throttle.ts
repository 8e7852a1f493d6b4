import { setTimeout as sleep } from 'node:timers/promises'
import { BackOff } from '../domain/back-off.ts'
import { concurrencyOf, type Limits, type LimitsReport, type LoadLevel, noLimits } from '../domain/limits.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { sufferingOf } from '../mongo/destination-pressure.ts'
import { Pace } from './pace.ts'
import { Slots } from './slots.ts'

const lookMS = 2_000
/** A cursor on the source waits meanwhile, which the server closes after ten minutes; and an operator sees little of it. */
const restMaxMS = 10_000
const restLookMS = 250
/** A batch is 4 MB at most: a destination that takes this long for one has more to do than it can. */
const slowWriteMS = 4_000
/** A limited rate is kept in pieces this long, not in bursts of a whole batch. */
const piecesPerSecond = 4
const batchBytesMin = 64 * 1024

/**
 * Everything that holds back bulk work in one instance: what the operator has set, which takes effect at once, and the
 * destination's own distress. Change events are never held back: falling behind them is what a limit must not cause.
 */
export class Throttle {
  readonly #loadLevel: LoadLevel
  readonly #backOff: BackOff
  readonly #pace = new Pace()
  readonly #reads = new Slots(() => this.readConcurrency)
  readonly #writes = new Slots(() => this.#backOff.allowed(this.writeConcurrency))
  #limits: Limits = noLimits
  #watching: NodeJS.Timeout | null = null
  readonly #listeners = new Set<() => void>()

  constructor(loadLevel: LoadLevel, backOff: BackOff = new BackOff()) {
    this.#loadLevel = loadLevel
    this.#backOff = backOff
  }

  set(limits: Limits): void {
    this.#limits = limits
    this.#pace.set(limits.bytesPerSecond)
    this.#wake()
  }

  get limits(): Limits {
    return this.#limits
  }

  get readConcurrency(): number {
    return this.#limits.readConcurrency ?? concurrencyOf(this.#loadLevel)
  }

  get writeConcurrency(): number {
    return this.#limits.writeConcurrency ?? concurrencyOf(this.#loadLevel)
  }

  /** Whether an operator has anything to see here that `loadLevel` does not say. */
  get isActive(): boolean {
    return this.#backOff.active !== null || Object.values(this.#limits).some((value) => value != null)
  }

  get report(): LimitsReport {
    const { bytesPerSecond } = this.#limits
    const { readConcurrency, writeConcurrency } = this
    const active = this.#backOff.active
    return {
      bytesPerSecond,
      readConcurrency,
      writeConcurrency,
      ...(active && {
        backedOff: {
          reason: active.reason,
          since: new Date(active.since).toISOString(),
          writeConcurrency: this.#backOff.allowed(writeConcurrency),
        },
      }),
    }
  }

  /** Calls `listener` whenever a limit has changed, until what is returned is called. */
  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Bytes for one batch, of at most `most`: a slow rate is kept by small ones. */
  batchBytes(most: number): number {
    const { bytesPerSecond } = this.#pace
    if (bytesPerSecond === null) return most
    return Math.min(most, Math.max(batchBytesMin, bytesPerSecond / piecesPerSecond))
  }

  /** One batch of a bulk read, when there is room for it and what was read before is earned. Throws StoppedError by `signal`. */
  async read<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return await this.#reads.run(signal, async () => {
      await this.#pace.earned(signal)
      return await work()
    })
  }

  /** Bytes of documents that a bulk read has brought. */
  spend(bytes: number): void {
    this.#pace.spend(bytes)
  }

  /** Resolves when what was read in bulk is earned. Throws StoppedError by `signal`. */
  earned(signal: AbortSignal): Promise<void> {
    return this.#pace.earned(signal)
  }

  /** One batch of the copy being written. Throws StoppedError by `signal`. */
  async write<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return await this.#writes.run(signal, async () => {
      const began = performance.now()
      // Once for each: how long a write takes that is not answered says nothing of how much the destination can bear.
      const reason = 'a batch of the copy takes the destination seconds to write'
      const slow = setTimeout(() => this.#note(reason), slowWriteMS)
      const written = await work().finally(() => clearTimeout(slow))
      await this.#rest(signal, performance.now() - began)
      return written
    })
  }

  /** After a write that took so many ms, while the destination suffers; ended early when it does no longer. */
  async #rest(signal: AbortSignal, tookMS: number): Promise<void> {
    const began = performance.now()
    const left = (): number => {
      const restMS = this.#backOff.rest(this.writeConcurrency) * tookMS
      return began + Math.min(restMS, restMaxMS) - performance.now()
    }
    while (left() > 0 && !signal.aborted) {
      await sleep(Math.min(left(), restLookMS), undefined, { signal }).catch(() => {})
    }
  }

  /** Looks every now and then how the destination is, until it is unwatched: while the copy is written. */
  watch(destination: Cluster): void {
    if (this.#watching) clearInterval(this.#watching)
    const look = async (): Promise<void> => this.#note(await sufferingOf(destination))
    // A look that fails says nothing about the destination's load; its writes do.
    this.#watching = setInterval(() => void look().catch(() => this.#note(null)), lookMS)
    this.#watching.unref()
  }

  unwatch(): void {
    if (this.#watching) clearInterval(this.#watching)
    this.#watching = null
    // Nothing is held back any more.
    this.#backOff.reset()
    this.#wake()
  }

  #note(suffering: string | null): void {
    // A look may be answered when there is nothing to hold back any more, and nobody to see that it is over.
    if (!this.#watching) return
    const before = this.#backOff.allowed(this.writeConcurrency)
    this.#backOff.note(suffering)
    if (this.#backOff.allowed(this.writeConcurrency) !== before) this.#wake()
  }

  #wake(): void {
    this.#reads.changed()
    this.#writes.changed()
    for (const listener of this.#listeners) listener()
  }
}
