import { findSpan, type TypedValue } from './raw-bson.ts'

/** Converts an `_id` element to a typed value, which has no name. */
export function idOf(idElement: Buffer): TypedValue {
  const typed = Buffer.allocUnsafe(idElement.length - 4)
  typed[0] = idElement[0] as number
  idElement.copy(typed, 1, 5)
  return typed
}

/** Returns the `_id` element of a document. */
export function idElementOf(document: Buffer): Buffer {
  const span = findSpan(document, '_id')
  if (!span) throw new RangeError('the document has no _id')
  return document.subarray(span.start, span.valueEnd)
}
