import type { CatalogEntry } from '../domain/catalog.ts'
import type { ChangeEvent } from '../domain/change-event.ts'

/**
 * Returns the event as it may be applied. An event up to the start time of its collection's last convergence becomes an
 * update, so its document is read from the source.
 *
 * A document that an event contains may be written, and a delete event may be applied, because every later change of
 * the document has an event that is applied afterwards. Changes of a collection under an excluded name have no events.
 * The rename back to a selected name leads to a convergence, which includes them. Its start time is later than the
 * rename, and the positions stay before it. An earlier event of the same document may then be applied when the
 * convergence of the document has ended, and no event follows that would correct it.
 */
export function unlessOlder(event: ChangeEvent, { convergedFrom }: CatalogEntry): ChangeEvent {
  if (convergedFrom === null || event.time > convergedFrom) return event
  return { ...event, kind: 'update', document: null }
}
