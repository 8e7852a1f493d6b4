/**
 * Returns the UUID of a change event's collection, as 16 bytes in latin1 text, from the event's resume token. Servers
 * before 6.0 report the UUID nowhere else, and by the time the event is read the name may belong to another collection.
 *
 * A token's `_data` is a KeyString in hexadecimal. It contains cluster time, version, token type, index in the
 * transaction, a flag for invalidation, UUID, and document key (server source:
 * src/mongo/db/pipeline/resume_token.cpp, `ResumeToken::ResumeToken`).
 * @throws RangeError if the token has another form
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
/** Type byte of a one-byte integer. Each of the next seven type bytes means one more byte. */
const numericPositive = 0x2b
const booleanFalse = 0x6e
const booleanTrue = 0x6f
/** Binary of 16 bytes with subtype UUID. */
const uuidHead = '5A1004'

/** Number of bytes of a non-negative integer, including its type byte. */
function numberBytes(type: number): number {
  if (type === numericZero) return 1
  if (type >= numericPositive && type < numericPositive + 8) return type - numericPositive + 2
  throw unreadable()
}

function byteAt(data: string, position: number): number {
  return Number.parseInt(data.slice(position, position + 2), 16)
}

function unreadable(): RangeError {
  return new RangeError('a resume token does not contain the UUID of the collection of its event')
}
