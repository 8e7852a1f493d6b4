import type { ChangeEvent } from '../domain/change-event.ts'
import { hasSpellings, idValueKey } from '../domain/id-value.ts'

export { idElementOf, idOf } from '../domain/id-element.ts'

/**
 * One document that changed, with what the newest event of the batch says of it. The document itself is what counts;
 * events before the newest one leave no trace but `fresh`.
 */
export interface Identity {
  /** The whole `_id` element: type byte, "_id\0", value. */
  idElement: Buffer
  /** The document, when the newest event carried it whole. */
  document: Buffer | null
  /** The newest event is a delete. */
  deleted: boolean
  /** The first event of the batch is an insert, and none a delete: the destination most likely has no such document yet. */
  fresh: boolean
  /** Any event of the batch is an insert: where order is content, the document stands after all before it. */
  inserted: boolean
  /** More than one event is folded into it: on a sharded source they may be of two documents. */
  folded: boolean
}

/** One text per `_id` by value: a replacement may spell it anew (1 for NumberLong(1)), and it is still the same document. */
export type IdentityKey = string

export function identityKey(idElement: Buffer): IdentityKey {
  const type = idElement[0] as number
  if (hasSpellings(type)) return idValueKey(idElement, type, idValueStart, idElement.length)
  return idElement.latin1Slice(0, idElement.length)
}

/** Past the type byte and "_id\0". */
const idValueStart = 5

/** An identity known by its `_id` alone: what stands there is to be read from the source. */
export function unread(idElement: Buffer): Identity {
  return { idElement, document: null, deleted: false, fresh: false, inserted: false, folded: false }
}

/** Folds an event into what the batch knows of its document already. */
export function fold(known: Identity | undefined, event: ChangeEvent, idElement: Buffer): Identity {
  const inserted = event.kind === 'insert'
  if (!known) {
    const deleted = event.kind === 'delete'
    return { idElement, document: event.document, deleted, fresh: inserted, inserted, folded: false }
  }
  known.idElement = idElement
  known.document = event.document
  known.deleted = event.kind === 'delete'
  known.inserted ||= inserted
  known.folded = true
  // On a sharded source the delete may be of another copy, which the destination still has.
  if (known.deleted) known.fresh = false
  return known
}
