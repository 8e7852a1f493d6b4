import { setTimeout as sleep } from 'node:timers/promises'
import { BackOff } from '../domain/back-off.ts'
import { type Limits, type LimitsReport, noLimits } from '../domain/limits.ts'
import { batchBytesOf, concurrencyOf, type LoadLevel, restMS } from '../domain/load-level.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { DestinationPressure } from '../mongo/destination-pressure.ts'
import { batchBytesFor, InFlight, type RoundTrips } from './in-flight.ts'
import { Pace } from './pace.ts'
import { Slots } from './slots.ts'

const pollMS = 2_000
/**
 * Upper bound of a pause after a write. The cursor on the source is idle during the pause, and the server closes a cursor
 * that is idle for ten minutes. Long pauses would also make the copy appear to have stopped.
 */
const pauseMaxMS = 10_000
const pausePollMS = 250
/** A batch of the copy has at most 4 MiB. A destination that takes this long to write one is overloaded. */
const slowWriteMS = 4_000
/** With a limited rate, this many small batches are read per second, instead of whole batches with long pauses. */
const piecesPerSecond = 4
const batchBytesMin = 64 * 1024

/**
 * Everything that limits bulk work in one instance: the load level, the limits set by the operator, which take effect at once,
 * and the load of the destination. Change events are never delayed, because a limit must not make the sync fall behind.
 */
export class Throttle {
  readonly #loadLevel: LoadLevel
  readonly #backOff: BackOff
  readonly #pace = new Pace()
  readonly #inFlight = new InFlight()
  readonly #reads = new Slots(() => this.readConcurrency)
  readonly #writes = new Slots(() => this.#backOff.allowed(this.writeConcurrency))
  #limits: Limits = noLimits
  /** The value of `#concurrencies` of which the slots and the listeners know. */
  #known: string
  #watching: { stop(): void } | null = null
  readonly #listeners = new Set<() => void>()

  constructor(loadLevel: LoadLevel, backOff: BackOff = new BackOff()) {
    this.#loadLevel = loadLevel
    this.#backOff = backOff
    this.#known = this.#concurrencies
  }

  set(limits: Limits): void {
    this.#limits = limits
    this.#pace.set(limits.bytesPerSecond)
    this.#wake()
  }

  get limits(): Limits {
    return this.#limits
  }

  /** How many reads of the copy and of the verifier's first pass may be under way. Over distance there are more. */
  get readConcurrency(): number {
    return this.#limits.readConcurrency ?? this.#inFlight.readsAtOnce(this.#atServer)
  }

  get writeConcurrency(): number {
    return this.#limits.writeConcurrency ?? this.#inFlight.writesAtOnce(this.#atServer)
  }

  /** How many segments to copy at a time. */
  get segmentsAtOnce(): number {
    const { readConcurrency, writeConcurrency } = this
    return this.#limits.readConcurrency ?? this.#inFlight.segmentsAtOnce(readConcurrency, writeConcurrency)
  }

  get #concurrencies(): string {
    return [this.readConcurrency, this.writeConcurrency, this.segmentsAtOnce].join()
  }

  get #atServer(): number {
    return concurrencyOf(this.#loadLevel)
  }

  /** True if an operator has set a limit, or if an overloaded destination limits the writes. */
  get isActive(): boolean {
    return this.#backOff.active !== null || Object.values(this.#limits).some((value) => value != null)
  }

  /** The limits in force. What is added to them over distance limits nothing, so it is not shown. */
  get report(): LimitsReport {
    const { bytesPerSecond } = this.#limits
    const readConcurrency = this.#limits.readConcurrency ?? this.#atServer
    const writeConcurrency = this.#limits.writeConcurrency ?? this.#atServer
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

  /** Calls `listener` after each change of a limit, until the returned function is called. */
  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** The size in bytes of one batch, at most `most`. A low load level and a slow rate need small batches. */
  batchBytes(most: number): number {
    const { bytesPerSecond } = this.#pace
    const ofLevel = Math.min(most, batchBytesOf(this.#loadLevel, this.#inFlight.destinationMS))
    const affordable = batchBytesFor(this.segmentsAtOnce, ofLevel)
    if (bytesPerSecond === null) return affordable
    return Math.min(affordable, Math.max(batchBytesMin, bytesPerSecond / piecesPerSecond))
  }

  /**
   * Runs one batch of a bulk read when a slot is free and the bytes of earlier reads are within the rate. Throws
   * StoppedError when `signal` is aborted.
   */
  async read<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return await this.#reads.run(signal, async () => {
      await this.#pace.earned(signal)
      const began = performance.now()
      const read = await work()
      this.#inFlight.read(performance.now() - began)
      this.#adapt()
      return read
    })
  }

  /** Charges the bytes of documents that a bulk read has returned. */
  spend(bytes: number): void {
    this.#pace.spend(bytes)
  }

  /** Resolves when all earlier bulk reads are within the rate. Throws StoppedError when `signal` is aborted. */
  earned(signal: AbortSignal): Promise<void> {
    return this.#pace.earned(signal)
  }

  /** Writes one batch of the copy. Throws StoppedError when `signal` is aborted. */
  async write<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return await this.#writes.run(signal, async () => {
      const began = performance.now()
      // Recorded only once per write, however long the write takes: more records would lower the limit further, but the
      // duration of one write does not show how much load the destination can take.
      const reason = 'the destination takes several seconds to write a batch of the copy'
      const slow = setTimeout(() => this.#observe(reason), slowWriteMS)
      const written = await work().finally(() => clearTimeout(slow))
      const tookMS = performance.now() - began
      this.#inFlight.written(tookMS)
      this.#adapt()
      await this.#pause(signal, tookMS)
      return written
    })
  }

  /**
   * Pauses in proportion to the duration of the last write, at a low load level always, and otherwise while the destination
   * is overloaded. Ends early when it recovers.
   */
  async #pause(signal: AbortSignal, tookMS: number): Promise<void> {
    const began = performance.now()
    const rest = restMS(this.#loadLevel, tookMS)
    const remaining = (): number => {
      const pauseMS = Math.max(rest, this.#backOff.pauseFactor(this.writeConcurrency) * tookMS)
      return began + Math.min(pauseMS, pauseMaxMS) - performance.now()
    }
    while (remaining() > 0 && !signal.aborted) {
      await sleep(Math.min(remaining(), pausePollMS), undefined, { signal }).catch(() => {})
    }
  }

  /**
   * Polls the load of the destination while the copy is written, and adapts the number of batches under way to the
   * round trips, until `unwatch` is called.
   */
  watch(destination: Cluster, roundTrips: RoundTrips): void {
    this.#watching?.stop()
    this.#inFlight.roundTrips = roundTrips
    const pressure = new DestinationPressure(destination)
    let polling = false
    const poll = async (): Promise<void> => {
      // A shard that does not answer delays a poll for longer than the interval.
      if (polling) return
      polling = true
      // If the poll fails, only the duration of the writes shows the load of the destination.
      this.#observe(await pressure.read().catch(() => null))
      polling = false
    }
    const timer = setInterval(() => void poll(), pollMS).unref()
    const stop = (): void => {
      clearInterval(timer)
      void pressure.close().catch(() => {})
    }
    this.#watching = { stop }
  }

  unwatch(): void {
    this.#watching?.stop()
    this.#watching = null
    // From now on, the load of the destination limits no writes.
    this.#backOff.reset()
    this.#inFlight.reset()
    this.#wake()
  }

  /** @param pressure null: no overload; undefined: the last observation still holds */
  #observe(pressure: string | null | undefined): void {
    // A reply may arrive after `unwatch`. A limit that it caused would never end, because no later poll follows.
    if (!this.#watching || pressure === undefined) return
    const before = this.#backOff.allowed(this.writeConcurrency)
    this.#backOff.record(pressure)
    if (this.#backOff.allowed(this.writeConcurrency) !== before) this.#wake()
    this.#adapt()
  }

  #adapt(): void {
    // While the destination is overloaded, the load level alone counts, and the durations are those of few writes.
    if (this.#backOff.active) this.#inFlight.forget()
    if (this.#concurrencies !== this.#known) this.#wake()
  }

  #wake(): void {
    this.#known = this.#concurrencies
    this.#reads.changed()
    this.#writes.changed()
    for (const listener of this.#listeners) listener()
  }
}
