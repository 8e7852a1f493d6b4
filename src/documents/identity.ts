import type { ChangeEvent } from '../domain/change-event.ts'
import { hasSeveralEncodings, idValueKey } from '../domain/id-value.ts'

export { idElementOf, idOf } from '../domain/id-element.ts'

/**
 * A document that a batch of events has changed, with the content of its newest event. "Events" below are the events of
 * this document in the batch. Earlier ones contribute only to the flags `fresh`, `inserted`, `folded` and `keyed`, and may
 * make `documentKey` and `deletedKey` null.
 */
export interface Identity {
  /** The whole `_id` element: type byte, "_id\0", value. */
  idElement: Buffer
  /**
   * The document key that all events name. Null if their keys differ, if an event names none, or if an event is a delete,
   * because the document may exist again under another key.
   */
  documentKey: Buffer | null
  /**
   * The document key of a delete that is the only event. The document with this key is gone, even if other documents have
   * its `_id`. Null for all other changes.
   */
  deletedKey: Buffer | null
  /** The document, when the newest event contains all of it; otherwise null. */
  document: Buffer | null
  /** The newest event is a delete. */
  deleted: boolean
  /** The first event is an insert and none is a delete, so the destination probably lacks the document. */
  fresh: boolean
  /** Any event is an insert. In a capped collection, the document then comes after all earlier ones. */
  inserted: boolean
  /** More than one event is folded into this identity. On a sharded source they may belong to two documents. */
  folded: boolean
  /**
   * Any event names the document by a shard key other than `_id` alone. The key may have been refined, or the collection
   * sharded, since tandem last read the source's definitions.
   */
  keyed: boolean
}

/**
 * A text that is equal for all BSON encodings of an `_id` value. A replacement may change 1 to NumberLong(1) in the
 * same document.
 */
export type IdentityKey = string

export function identityKey(idElement: Buffer): IdentityKey {
  const type = idElement[0] as number
  if (hasSeveralEncodings(type)) return idValueKey(idElement, type, idValueStart, idElement.length)
  return idElement.latin1Slice(0, idElement.length)
}

/** Offset of the value after the type byte and "_id\0". */
const idValueStart = 5

/** An identity that only has an `_id`. Its document must be read from the source. */
export function unread(idElement: Buffer): Identity {
  return {
    idElement,
    documentKey: null,
    deletedKey: null,
    document: null,
    deleted: false,
    fresh: false,
    inserted: false,
    folded: false,
    keyed: false,
  }
}

/** Folds an event into the identity that the batch already has for its document. */
export function fold(known: Identity | undefined, event: ChangeEvent, idElement: Buffer): Identity {
  const inserted = event.kind === 'insert'
  if (!known) {
    const deleted = event.kind === 'delete'
    return {
      idElement,
      documentKey: deleted ? null : event.documentKey,
      deletedKey: deleted ? event.documentKey : null,
      document: event.document,
      deleted,
      fresh: inserted,
      inserted,
      folded: false,
      keyed: event.keyed,
    }
  }
  known.idElement = idElement
  if (event.kind === 'delete' || !event.documentKey || !known.documentKey?.equals(event.documentKey)) {
    known.documentKey = null
  }
  known.deletedKey = null
  known.document = event.document
  known.deleted = event.kind === 'delete'
  known.inserted ||= inserted
  known.folded = true
  known.keyed ||= event.keyed
  // On a sharded source, the deleted document may be another one with this `_id`, which the destination still has.
  if (known.deleted) known.fresh = false
  return known
}
