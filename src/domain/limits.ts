/** How hard one instance may load the clusters with what is done in bulk: the copy, and the verifier's first pass. */

/** What an operator has set. Null: nothing, `loadLevel` decides. */
export interface Limits {
  /** Bytes of BSON documents read from the source each second. */
  bytesPerSecond: number | null
  /** Ranges of documents read at a time. */
  readConcurrency: number | null
  /** Batches of the copy being written at a time. */
  writeConcurrency: number | null
}

export const noLimits: Limits = { bytesPerSecond: null, readConcurrency: null, writeConcurrency: null }

/**
 * The slowest that may be asked for: at this rate a batch of 16 MB of each of the most readers there may be takes four minutes in all,
 * and a cursor that waits for longer than ten is closed by the server (`cursorTimeoutMillis`).
 */
export const bytesPerSecondMin = 1_048_576
/** Each range has up to two batches of 4 MB in memory. */
export const concurrencyMax = 16

/** What is in force now, and why it is less than what was asked for. */
export interface LimitsReport {
  bytesPerSecond: number | null
  readConcurrency: number
  writeConcurrency: number
  /** The destination suffers: fewer batches than `writeConcurrency` are written at a time, and then with rests between them. */
  backedOff?: BackedOff
}

export interface BackedOff {
  reason: string
  /** ISO 8601. */
  since: string
  /** Batches written at a time now. */
  writeConcurrency: number
}

/** mongosync's 1 to 4: how hard to load the clusters. */
export type LoadLevel = 1 | 2 | 3 | 4

const rangesAtOnce: Record<LoadLevel, number> = { 1: 1, 2: 2, 3: 4, 4: 8 }

/** Ranges read, and batches written, at a time where the operator has not set it. */
export function concurrencyOf(loadLevel: LoadLevel): number {
  return rangesAtOnce[loadLevel]
}
