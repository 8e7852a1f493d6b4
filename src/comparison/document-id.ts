import { BSON } from 'mongodb'
import { buildDocument, findSpan, typedValue } from '../domain/raw-bson.ts'

const shownCharactersMax = 1_000

const decoding = { promoteValues: false, bsonRegExp: true } as const

/** A document of the `_id` alone, byte for byte. */
function idDocument(document: Buffer): Buffer {
  const id = findSpan(document, '_id')
  return buildDocument(id === null ? [] : [{ name: '_id', value: typedValue(document, id) }])
}

/** Equal bytes: the same `_id` in the same spelling. */
export function sameIdBytes(one: Buffer, other: Buffer): boolean {
  return idDocument(one).equals(idDocument(other))
}

/** The `_id` in canonical extended JSON, cut when it is very long; its bytes in hexadecimal where js-bson cannot read it. */
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
 * The `_id` as a value that the driver sends as the same bytes, or null where js-bson would change it (numeric field
 * names in another order, names that are there twice, DBPointer): asking for another `_id` would be answered wrongly.
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
