/** mongosync's load level from 1 to 4. */
export type LoadLevel = 1 | 2 | 3 | 4

interface Burden {
  /** How many ranges are read at a time, and how many batches are written at a time, if the operator sets no limit. */
  ranges: number
  /** Maximum bytes of a batch of the copy from and to clusters nearby. */
  batchBytes: number
  /** The rest after a write, as a multiple of its duration. */
  restFactor: number
}

/**
 * Levels 1 and 2 are for clusters that serve applications meanwhile. A request that arrives while a batch is read or
 * written waits for a core, for the journal and for the cache. With small batches it waits less, and with a rest after each
 * write few requests meet one (docs/bench.md, "Beside busy clusters"). Levels 3 and 4 copy as fast as their ranges allow.
 */
const burdens: Record<LoadLevel, Burden> = {
  1: { ranges: 1, batchBytes: 256 * 1024, restFactor: 3 },
  2: { ranges: 2, batchBytes: 256 * 1024, restFactor: 3 },
  3: { ranges: 4, batchBytes: Number.POSITIVE_INFINITY, restFactor: 0 },
  4: { ranges: 8, batchBytes: Number.POSITIVE_INFINITY, restFactor: 0 },
}

/**
 * From this round trip on, a cluster counts as distant: batches grow in proportion to it, and more are under way. A shorter
 * one may be the delay of a busy cluster nearby.
 */
export const distantMS = 20

export function concurrencyOf(loadLevel: LoadLevel): number {
  return burdens[loadLevel].ranges
}

/** The maximum bytes of a batch of the copy. Over distance larger batches are needed, because each costs a round trip. */
export function batchBytesOf(loadLevel: LoadLevel, roundTripMS: number): number {
  return Math.floor(burdens[loadLevel].batchBytes * Math.max(1, roundTripMS / distantMS))
}

/**
 * How long to rest after a write of the copy, in milliseconds. The round trip counts too: the pings of a busy cluster are slow,
 * and without them the rest would be shortest where it is needed most.
 * @param tookMS from sending the write until its reply
 */
export function restMS(loadLevel: LoadLevel, tookMS: number): number {
  return burdens[loadLevel].restFactor * tookMS
}
