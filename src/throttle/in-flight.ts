import { concurrencyMax } from '../domain/limits.ts'
import { distantMS } from '../domain/load-level.ts'

/**
 * How many batches of a copy are under way at a time, so that a distant cluster has as much to do as a nearby one.
 *
 * A batch takes a round trip r and, on the server, a time s. Of n batches that are under way, n × s / (r + s) are on the
 * server (Little's law). The load level says how many may be there. So n grows with the round trip, and shrinks when the
 * server takes longer, for example because it is loaded.
 */

/** Round trip to each cluster without load, in ms; 0 while it is not known. */
export type RoundTrips = () => { source: number; destination: number }

/** At most this many times the number that the load level allows at the server. */
const growthMax = 4
/** Batches of a copy in memory, in bytes. Each segment that is copied has two: one that is read and one that is written. */
const memoryMax = 48 * 1024 * 1024
const batchesPerSegment = 2
/** Weight of the newest duration in the average. */
const newestShare = 0.1
/** A fraction of a batch for which no more batches are sent, so that nothing changes for a nearby cluster. */
const negligible = 0.2
/** A ping and a batch vary, so a batch never appears to take less time than this on the server, ms. */
const atServerMinMS = 5

/**
 * @param base the number of batches that may be at the server
 * @param roundTripMS to that server
 * @param batchMS from a request to its reply; null before the first reply
 */
export function atOnce(base: number, roundTripMS: number, batchMS: number | null): number {
  if (batchMS === null || roundTripMS < distantMS) return base
  const atServerMS = Math.max(atServerMinMS, batchMS - roundTripMS)
  const wanted = Math.ceil(base * (1 + roundTripMS / atServerMS) - negligible)
  return Math.max(base, Math.min(wanted, base * growthMax, concurrencyMax))
}

/** The largest batch, in bytes, with which this many segments keep within the memory limit. */
export function batchBytesFor(segments: number, most: number): number {
  return Math.min(most, Math.floor(memoryMax / (segments * batchesPerSegment)))
}

/** The durations of the batches of a copy, and what follows from them. */
export class InFlight {
  roundTrips: RoundTrips | null = null
  #readMS: number | null = null
  #writeMS: number | null = null

  /**
   * Records a read of a batch from the source. A shorter time than the round trip shows that nothing was requested.
   * @param tookMS from the request to the reply
   */
  read(tookMS: number): void {
    if (tookMS >= (this.roundTrips?.().source ?? 0)) this.#readMS = average(this.#readMS, tookMS)
  }

  /** Records a write of a batch to the destination. */
  written(tookMS: number): void {
    this.#writeMS = average(this.#writeMS, tookMS)
  }

  /** Round trip to the destination, ms; 0 if it is nearby or not known. */
  get destinationMS(): number {
    const { destination } = this.roundTrips?.() ?? { destination: 0 }
    return destination < distantMS ? 0 : destination
  }

  /** The number of reads from the source that may be under way when `base` may be at the server. */
  readsAtOnce(base: number): number {
    return this.roundTrips ? atOnce(base, this.roundTrips().source, this.#readMS) : base
  }

  writesAtOnce(base: number): number {
    return this.roundTrips ? atOnce(base, this.roundTrips().destination, this.#writeMS) : base
  }

  /**
   * How many segments to copy at a time. Each has at most one read and one write under way, so the side whose batches take
   * longer has one under way for almost every segment. More segments than that side needs would only hold batches in memory,
   * which makes all batches smaller. The closer the durations of both sides are, the more often a segment waits for the
   * other side, so a few more segments are copied.
   */
  segmentsAtOnce(readsAtOnce: number, writesAtOnce: number): number {
    const [readMS, writeMS] = [this.#readMS, this.#writeMS]
    const most = Math.max(readsAtOnce, writesAtOnce)
    if (readMS === null || writeMS === null) return most
    const needed = writeMS >= readMS ? writesAtOnce : readsAtOnce
    const waiting = Math.min(readMS, writeMS) / Math.max(readMS, writeMS) / 2
    return Math.min(most, Math.ceil(needed * (1 + waiting) - negligible))
  }

  /** Until the next batches, the number is what the load level allows. */
  forget(): void {
    this.#readMS = null
    this.#writeMS = null
  }

  reset(): void {
    this.roundTrips = null
    this.forget()
  }
}

function average(before: number | null, newest: number): number {
  return before === null ? newest : before + newestShare * (newest - before)
}
