/**
 * How much the verifier's scan requests from both clusters at a time. A reply takes at least one round trip, so a
 * distant cluster needs larger requests for the same throughput.
 */
export interface ReadAhead {
  /** Number of ranges that are compared at a time, each on both sides. */
  ranges: number
  /** Bytes of one batch of one side. */
  batchBytes: number
}

const mebibyte = 1024 * 1024

/** Two ranges are enough while a reply takes about as long as the comparison of the previous batch. */
const rangesNearby = 2
/** The smallest batch, used for nearby clusters: larger batches would need more memory and save no time. */
const batchBytesMin = 2 * mebibyte
/** A quarter of a segment, so that little capacity is idle at the end of a range. */
const batchBytesMax = 8 * mebibyte
/** The highest useful read rate from one cluster: one process compares at most 200 MiB a second. */
const bytesPerMS = (200 * mebibyte) / 1_000
/**
 * Maximum number of bytes requested or in memory for all ranges. Each range has two batches of each side: the one being
 * compared and the next one. The driver briefly holds a reply both in pieces and as a whole, so the process may grow by
 * twice this.
 */
const memoryMax = 64 * mebibyte
const batchesPerRange = 4

/**
 * Computes the read-ahead. It first raises the number of ranges, which also hides the initial round trip of each range,
 * and only then the size of the batches.
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

/** Maximum number of bytes that this read-ahead has in memory. */
export function bytesAhead({ ranges, batchBytes }: ReadAhead): number {
  return ranges * batchesPerRange * batchBytes
}
