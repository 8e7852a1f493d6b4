import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'

/** A collection that a DDL event reports as dropped, as the catalog had it before definitions were followed. */
export interface DroppedCollection {
  entry: CatalogEntry
  destinationUUID: string
  /** The time of the drop. */
  time: ClusterTime
}

/**
 * Returns the collections of the catalog that these events drop. Call it before the events are followed.
 *
 * On a replica set, a drop does not end a UUID: `applyOps` creates a collection with a given UUID, and
 * `mongorestore --drop --preserveUUID` drops a collection and creates it again in this way. A read of the source's
 * catalog that is later than both finds nothing to drop, although the former documents are gone. They have no delete
 * events.
 *
 * A drop event of a source older than 6.0 has no UUID, so it concerns the collection that has the name in the catalog.
 * A rename event of such a source does not say which collection the rename has replaced. A drop event of a later source
 * has no UUID if it concerns a view. The catalog may then already have another collection under the view's name.
 * @param before6 the source is older than 6.0
 */
export function droppedBy(events: readonly ChangeEvent[], catalog: Catalog, before6: boolean): DroppedCollection[] {
  return events.flatMap((event) =>
    entriesDroppedBy(event, catalog, before6).flatMap((entry) => {
      const { destinationUUID } = entry
      // A collection that the destination does not have yet is created without documents.
      return destinationUUID ? [{ entry, destinationUUID, time: event.time }] : []
    }),
  )
}

/**
 * Returns the dropped collections that the destination still has after the events were followed, by UUID, each with its
 * namespace. The source had created them again when its catalog was read, so the destination may have documents of the
 * dropped collection. They must be converged. Omits collections whose convergence began after the drop.
 *
 * A collection that tandem has dropped on the destination and created again is not returned: it was empty when it was
 * created, and all its later documents have events.
 */
export function createdAgain(dropped: readonly DroppedCollection[], catalog: Catalog): Map<string, string> {
  const again = new Map<string, string>()
  for (const { entry, destinationUUID, time } of dropped) {
    const now = catalog.get(entry.uuid)
    if (now?.destinationUUID !== destinationUUID) continue
    if (now.convergedFrom !== null && time <= now.convergedFrom) continue
    again.set(now.uuid, namespace(now.database, now.sourceName))
  }
  return again
}

function entriesDroppedBy(
  { operationType, database, collection, uuid, replacedUuid }: ChangeEvent,
  catalog: Catalog,
  before6: boolean,
): CatalogEntry[] {
  if (operationType === 'drop' && uuid === '') {
    return before6 && isUserCollection(collection)
      ? catalog.inDatabase(database).filter(({ name }) => name === collection)
      : []
  }
  const entry = catalog.get(operationType === 'drop' ? uuid : replacedUuid)
  return entry ? [entry] : []
}
