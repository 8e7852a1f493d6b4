import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'

/** A collection that a drop event, or a rename event over it, reports as dropped. */
export interface DroppedCollection {
  /** The collection's entry in the catalog before the changes of definitions were applied. */
  entry: CatalogEntry
  destinationUUID: string
  /** The time of the drop. */
  time: ClusterTime
}

/**
 * Returns the collections of the catalog that these events drop and that the destination already has. Call it before
 * the changes of definitions are applied, because they change the catalog.
 *
 * On a replica set, a new collection can have the UUID of a dropped one: `applyOps` creates a collection with a given
 * UUID, and `mongorestore --drop --preserveUUID` drops a collection and creates it again in this way. If the source's
 * collections are listed only after both steps, the UUID is found, and nothing shows that there was a drop. The former
 * documents are gone, but there are no delete events for them.
 *
 * A drop event of a source older than 6.0 has no UUID, so it is taken as the drop of the collection that has the
 * event's namespace in the catalog. A rename event of such a source does not say which collection the rename has
 * replaced, so that collection is not returned. A drop event of a later source has no UUID if it concerns a view. Such
 * an event is ignored, even if the catalog already has a collection under the view's name.
 * @param before6 the source is older than 6.0
 */
export function droppedBy(events: readonly ChangeEvent[], catalog: Catalog, before6: boolean): DroppedCollection[] {
  return events.flatMap((event) =>
    entriesDroppedBy(event, catalog, before6).flatMap((entry) => {
      const { destinationUUID } = entry
      // Left out if the destination does not have the collection yet: it is then created without documents.
      return destinationUUID ? [{ entry, destinationUUID, time: event.time }] : []
    }),
  )
}

/**
 * Returns the dropped collections that the destination still has after the changes of definitions were applied, by
 * UUID, each with its namespace. The source had created them again when its collections were listed, so the destination
 * may have documents of the dropped collections. The collections must be converged. Omits collections whose convergence
 * began at the time of the drop or later.
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
