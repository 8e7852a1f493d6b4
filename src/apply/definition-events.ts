import type { Touched } from '../coordination/barriers.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'

/** Returns the databases and collections whose definitions these events have changed. */
export function touchedBy(events: readonly ChangeEvent[]): Touched {
  const touched = new Map<string, Set<string>>()
  for (const { database, collection, uuid } of events) {
    const uuids = touched.get(database) ?? new Set()
    touched.set(database, uuids)
    if (uuid && isUserCollection(collection)) uuids.add(uuid)
  }
  return touched
}

/** Returns the namespace of the collection after this event. */
export function currentName({ database, collection, to }: ChangeEvent): string {
  return namespace(to?.database ?? database, to?.collection ?? collection)
}
