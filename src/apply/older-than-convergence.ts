import type { CatalogEntry } from '../domain/catalog.ts'
import type { ChangeEvent } from '../domain/change-event.ts'

/**
 * Returns the event in a form that is safe to apply. An event up to the start time of its collection's last convergence
 * becomes an update, so its document is read from the source.
 *
 * It is usually safe to write the document that an event contains, and to apply a delete event, because every later
 * change of the document has an event that is applied afterwards. But changes that are made while the collection has an
 * excluded name have no events. When the collection is renamed back to a selected name, it is converged, and the
 * convergence includes those changes. The convergence starts at a time later than the rename, while the stored
 * positions are still before the rename. An older event of a document may therefore be applied after the document is
 * converged, and no later event would correct it.
 */
export function unlessOlder(event: ChangeEvent, { convergedFrom }: CatalogEntry): ChangeEvent {
  if (convergedFrom === null || event.time > convergedFrom) return event
  return { ...event, kind: 'update', document: null }
}
