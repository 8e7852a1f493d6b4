/** Limits on the load of one instance's bulk work: the copy and the initial verification. */

/** The limits that an operator has set. If a concurrency is null, `loadLevel` decides it. A rate of null is unlimited. */
export interface Limits {
  /** Bytes of BSON documents read from the source per second. */
  bytesPerSecond: number | null
  /** Maximum number of ranges that are read at a time. */
  readConcurrency: number | null
  /** Maximum number of batches of the copy that are written at a time. */
  writeConcurrency: number | null
}

export const noLimits: Limits = { bytesPerSecond: null, readConcurrency: null, writeConcurrency: null }

/**
 * The lowest rate allowed. At this rate, one reply of 16 MB, the largest possible, for each of `concurrencyMax` cursors
 * takes about four minutes in total. A cursor may be idle for that time. The server closes a cursor that is idle for
 * ten minutes (`cursorTimeoutMillis`).
 */
export const bytesPerSecondMin = 1_048_576
/** The highest concurrency allowed. Each range keeps two batches in memory (`batchBytesFor` in src/throttle/in-flight.ts). */
export const concurrencyMax = 16

/** The limits in force now, and the reason if they are lower than requested. */
export interface LimitsReport {
  bytesPerSecond: number | null
  readConcurrency: number
  writeConcurrency: number
  /**
   * Present while the destination is overloaded. tandem first reduces the number of batches that it writes at a time.
   * If one at a time is still too much, it also pauses between batches.
   */
  backedOff?: BackedOff
}

export interface BackedOff {
  reason: string
  /** ISO 8601. */
  since: string
  /** Number of batches that may be written at a time now. */
  writeConcurrency: number
}
