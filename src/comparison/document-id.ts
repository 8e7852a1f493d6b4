import { BSON } from 'mongodb'
import { buildDocument, findSpan, typedValue } from '../domain/raw-bson.ts'

const shownCharactersMax = 1_000

const decoding = { promoteValues: false, bsonRegExp: true } as const

/** Returns a document that contains only the `_id`, byte for byte. */
function idDocument(document: Buffer): Buffer {
  const id = findSpan(document, '_id')
  return buildDocument(id === null ? [] : [{ name: '_id', value: typedValue(document, id) }])
}

/** True if both `_id`s have the same bytes and therefore the same encoding. */
export function sameIdBytes(one: Buffer, other: Buffer): boolean {
  return idDocument(one).equals(idDocument(other))
}

/**
 * Returns the `_id` in canonical Extended JSON, truncated if it is very long. Returns its bytes in hexadecimal if
 * js-bson cannot read it.
 */
export function shownId(document: Buffer): string {
  const id = idDocument(document)
  let text: string
  try {
    text = BSON.EJSON.stringify(BSON.deserialize(id, decoding)['_id'], { relaxed: false }) ?? 'undefined'
  } catch {
    text = `0x${id.toString('hex')}`
  }
  return text.length > shownCharactersMax ? `${text.slice(0, shownCharactersMax)}…` : text
}

/**
 * Returns the `_id` as a value that the driver sends as the same bytes. Returns null if js-bson would change it (it
 * reorders numeric field names, drops duplicate names and rewrites DBPointer), because a query would then look for
 * another document.
 */
export function queryableId(document: Buffer): { value: unknown } | null {
  const id = idDocument(document)
  try {
    const decoded = BSON.deserialize(id, decoding)
    return Buffer.compare(BSON.serialize(decoded), id) === 0 ? { value: decoded['_id'] } : null
  } catch {
    return null
  }
}
