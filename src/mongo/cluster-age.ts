import type { Document } from 'mongodb'

/**
 * Ages of documents of the metadata database, measured by the cluster time. `$$NOW` is not suitable: a router sends its own
 * clock with an aggregation or an update (`legacyRuntimeConstants` in the server's source), so two instances that use
 * different routers would measure the difference between the clocks of the routers.
 */

/** Stores the cluster time of the write. The server advances the cluster time to its clock for this. */
export const currentClusterTime = { $type: 'timestamp' }

/**
 * Returns an expression for the milliseconds since `stored` was set to the cluster time, exact to a second. While nothing
 * writes to the cluster, its time stands still for up to ten seconds, so the result may be too small by that.
 * @param earlier a date by the server's clock, for documents without `stored`, which an earlier release has written
 */
export function ageMS(stored: string, earlier: string): Document {
  const sinceStored = { $subtract: [{ $toDate: '$$CLUSTER_TIME' }, { $toDate: stored }] }
  // The result is null without `stored`. The clock of a server and the cluster time may differ, so they are not mixed.
  return { $ifNull: [sinceStored, { $subtract: ['$$NOW', earlier] }] }
}
