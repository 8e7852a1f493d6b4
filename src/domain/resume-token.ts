/**
 * The UUID of the collection that a change event is about, as 16 bytes in latin1 text, from the event's resume token: releases
 * before 6.0 tell it nowhere else, and a name may stand for another collection by the time the event is read.
 *
 * A token's `_data` is a KeyString in hexadecimal of cluster time, version, token type, index in the transaction, whether it comes
 * from an invalidation, UUID, and document key (server source: src/mongo/db/pipeline/resume_token.cpp, `ResumeToken::ResumeToken`).
 */
export function uuidOfToken(data: string): string {
  // Type byte and eight bytes of timestamp.
  let position = 2 * 9
  // Version, token type, index in the transaction.
  for (let number = 0; number < 3; number++) position += 2 * numberBytes(byteAt(data, position))
  const fromInvalidate = byteAt(data, position)
  if (fromInvalidate !== booleanFalse && fromInvalidate !== booleanTrue) throw unreadable()
  position += 2
  if (data.slice(position, position + uuidHead.length).toUpperCase() !== uuidHead) throw unreadable()
  position += uuidHead.length
  const uuid = Buffer.from(data.slice(position, position + 32), 'hex')
  if (uuid.length !== 16) throw unreadable()
  return uuid.latin1Slice()
}

/** Type bytes of a KeyString (server source: src/mongo/db/storage/key_string.cpp, `CType`). */
const numericZero = 0x29
/** For an integer of one byte; each of the following seven has a byte more. */
const numericPositive = 0x2b
const booleanFalse = 0x6e
const booleanTrue = 0x6f
/** Binary, 16 bytes, of subtype UUID. */
const uuidHead = '5A1004'

/** How many bytes a non-negative integer takes, its type among them. */
function numberBytes(type: number): number {
  if (type === numericZero) return 1
  if (type >= numericPositive && type < numericPositive + 8) return type - numericPositive + 2
  throw unreadable()
}

function byteAt(data: string, position: number): number {
  return Number.parseInt(data.slice(position, position + 2), 16)
}

function unreadable(): RangeError {
  return new RangeError('a resume token does not tell which collection its event is about')
}
