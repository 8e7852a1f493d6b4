import type { Document } from 'mongodb'

/**
 * Stored names of earlier releases that cannot change, because writes that fence other instances use them in the filter
 * or as the collection. If one of them were renamed, both names would be in use while an instance of an earlier release
 * runs. A write that checks one name would then not be rejected because of the value under the other name. All other
 * code uses the names of this file's exports.
 */

/**
 * The collection with the state of the sync. All instances agree on that state because each event is a conditional write
 * of one document in it. Two collections would hold two states.
 */
export const syncStateCollection = 'stages'

/**
 * Fields of a lease. Writes to a lease do not check its schema version first, and leases remain when all other metadata
 * is removed.
 *
 * evicted  True when other instances have evicted the holder. An eviction is completed only if this is still true.
 * drained  The epoch up to which the writes of the lease's terms have ended. The server compares it with `epoch` when the
 *          lease is given back.
 */
export const leaseFields = { evicted: 'buried', drained: 'settled' } as const

/** True from the eviction of the lease's holder until the lease is taken again. */
export function isEvicted(lease: Document): boolean {
  return lease[leaseFields.evicted] === true
}

/**
 * Equals the epoch when the writes of all earlier terms of the lease have ended, and exceeds it when those of the last
 * term have ended as well.
 */
export function drainedEpoch(lease: Document): number {
  return (lease[leaseFields.drained] as number | undefined) ?? 0
}
