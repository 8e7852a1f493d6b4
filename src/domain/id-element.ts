import { findSpan, type TypedValue } from './raw-bson.ts'

/** `_id` as a typed value, for commands that use it under another name. */
export function idOf(idElement: Buffer): TypedValue {
  const typed = Buffer.allocUnsafe(idElement.length - 4)
  typed[0] = idElement[0] as number
  idElement.copy(typed, 1, 5)
  return typed
}

/** The `_id` element of a whole document. */
export function idElementOf(document: Buffer): Buffer {
  const span = findSpan(document, '_id')
  if (!span) throw new RangeError('the document has no _id')
  return document.subarray(span.start, span.valueEnd)
}
