import { idElementOf, idOf } from '../documents/identity.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { type ClusterTime, secondsOf } from '../domain/cluster-time.ts'
import { type CollectionDefinition, collectionExpiry, deferredOptionsOf } from '../domain/definition.ts'
import { embedded, fieldNamed, numberOf, type RawFields, readFields, type TypedValue } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'

/** A query filter. */
type Condition = Record<string, unknown>

/** The largest number of `_id`s in one command. */
const idsMax = 1_000
/** The earliest time that a JavaScript Date can represent. */
const earliestMS = -8.64e15

/** True if documents of the collection can expire. */
export function expiresDocuments({ options, indexes }: CollectionDefinition): boolean {
  return (
    collectionExpiry(options) !== undefined ||
    indexes.some((index) => deferredOptionsOf(index).expireAfterSeconds !== undefined)
  )
}

/**
 * Returns which of the documents that were deleted on the source could not have expired before they were deleted. The
 * TTL monitor did not delete these, so a user did. The delete events do not say who has deleted a document. The
 * destination still has the document as it was at the commit timestamp, so this queries the destination with the
 * conditions of the TTL monitor: the index contains the document, and the date in the indexed field is old enough
 * (src/mongo/db/ttl.cpp in the server's source). A document that the destination no longer has counts as expired.
 *
 * The time of an event is not earlier than the clock by which the TTL monitor chose the document, because a server
 * assigns no operation time that is earlier than its own clock.
 *
 * @param by the time of the last of these deletes
 * @returns the `_id` elements on the destination
 */
export async function notExpired(
  destination: Cluster,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
  by: ClusterTime,
): Promise<Buffer[]> {
  const found: Buffer[] = []
  const expired = expiryConditions(entry.wanted, 1_000 * (secondsOf(by) + 1))
  for (let from = 0; from < idElements.length; from += idsMax) {
    const ids = idElements.slice(from, from + idsMax).map((element) => new RawValue(idOf(element)))
    const command = {
      find: entry.name,
      filter: { _id: { $in: ids }, $nor: expired },
      projection: { _id: 1 },
      readConcern: { level: 'majority' },
      ...(entry.destinationUUID === null ? {} : { collectionUUID: toUuid(entry.destinationUUID) }),
    }
    const documents = await RawCursor.readAll(destination, entry.database, command).catch((error): Buffer[] => {
      // The collection no longer exists under this name. Once writes are enabled, users may have renamed or dropped it.
      if (renamedTo(error) !== undefined) return []
      throw error
    })
    found.push(...documents.map(idElementOf))
  }
  return found
}

/** Returns the conditions under which documents of the collection are expired at the given time. Each one suffices. */
function expiryConditions({ options, indexes }: CollectionDefinition, nowMS: number): Condition[] {
  const conditions: Condition[] = []
  const seconds = collectionExpiry(options)
  if (seconds) conditions.push({ _id: { $lte: cutoff(seconds, nowMS) } })
  for (const index of indexes) {
    const { expireAfterSeconds } = deferredOptionsOf(index)
    const field = keyField(index)
    if (!expireAfterSeconds || field === undefined) continue
    // The server evaluates the filter with the index's collation, but this query has the collection's. If they differ,
    // the filter is left out, so that more deletes count as expiry.
    const filter = hasOwnCollation(index, options) ? undefined : fieldNamed(index, 'partialFilterExpression')
    const isDue = { [field]: { $lte: cutoff(expireAfterSeconds, nowMS) } }
    conditions.push(filter ? { $and: [isDue, new RawValue(filter)] } : isDue)
  }
  return conditions
}

/** Returns the only field of a TTL index. */
function keyField(index: RawFields): string | undefined {
  const key = fieldNamed(index, 'key')
  return key && readFields(embedded(key))[0]?.name
}

/** Returns the latest date with which a document has expired. An infinite or NaN `expireAfterSeconds` counts as 0. */
function cutoff(expireAfterSeconds: TypedValue, nowMS: number): Date {
  const seconds = numberOf(expireAfterSeconds) ?? 0
  return new Date(Math.max(earliestMS, nowMS - 1_000 * (Number.isFinite(seconds) ? seconds : 0)))
}

/** True unless the index certainly has the collation of its collection. */
function hasOwnCollation(index: RawFields, options: RawFields): boolean {
  const [own, inherited] = [fieldNamed(index, 'collation'), fieldNamed(options, 'collation')]
  return own && inherited ? !embedded(own).equals(embedded(inherited)) : own !== inherited
}
