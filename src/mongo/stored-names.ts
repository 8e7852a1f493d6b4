import type { Document } from 'mongodb'

/**
 * Names of earlier releases that are stored for ever, because the filter or the place of a write that fences other
 * instances contains them. A second name would exist beside the first one while an instance of an earlier release runs,
 * and a write that looks for one of them would not be stopped by the other. Everything else uses the names of this
 * file's exports.
 */

/**
 * The collection with the state of the sync. All instances agree on that state because each event is a conditional write
 * of one document in it. Two collections would be two states.
 */
export const syncStateCollection = 'stages'

/**
 * Fields of a lease. A lease has no version that is checked before it is written, and it remains when everything else is
 * removed.
 *
 * evicted  Other instances have evicted the holder. The eviction is completed only where this is set.
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
