/**
 * How much of both clusters the verifier's scan reads ahead. A reply is under way for at least a round trip, so over
 * distance more must be requested at a time for the same throughput.
 */
export interface ReadAhead {
  /** Ranges that are compared at a time. Both sides of each are read. */
  ranges: number
  /** Bytes of one batch of one side. */
  batchBytes: number
}

const mebibyte = 1024 * 1024

/** Enough while a reply takes about as long as the comparison of the batch before it. */
const rangesNearby = 2
/** The smallest batch, and the one that is used nearby: larger ones need more memory and take no less time. */
const batchBytesMin = 2 * mebibyte
/** A quarter of a segment, so that the end of a range costs little of what was read ahead. */
const batchBytesMax = 8 * mebibyte
/** What is read from one cluster in a second at best: one process compares no more than that. */
const bytesPerMS = (200 * mebibyte) / 1_000
/**
 * The most that is requested or kept in memory for all ranges. Each has two batches of each side: the one that is compared
 * and the next one. The driver holds a reply in pieces and as a whole for a moment, so the process may grow by twice this.
 */
const memoryMax = 64 * mebibyte
const batchesPerRange = 4

/**
 * More ranges come first, because they also hide the round trip with which each range begins. Larger batches follow.
 * @param roundTripMS to the slower cluster
 * @param rangesMax the number of ranges that the load level or the operator allows, at least 1
 */
export function readAhead(roundTripMS: number, rangesMax: number): ReadAhead {
  const wanted = bytesPerMS * roundTripMS
  const inTime = Math.max(rangesNearby, Math.ceil(wanted / batchBytesMin))
  const inMemory = memoryMax / (batchesPerRange * batchBytesMin)
  const ranges = Math.max(1, Math.min(rangesMax, inTime, inMemory))
  const affordable = memoryMax / (batchesPerRange * ranges)
  const batchBytes = Math.min(batchBytesMax, affordable, Math.max(batchBytesMin, wanted / ranges))
  return { ranges, batchBytes: Math.floor(batchBytes) }
}

/** The most that this read-ahead keeps in memory. */
export function bytesAhead({ ranges, batchBytes }: ReadAhead): number {
  return ranges * batchesPerRange * batchBytes
}
