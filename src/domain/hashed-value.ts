import { hash } from 'node:crypto'
import { bsonType, type TypedValue } from './raw-bson.ts'

/**
 * Returns the int64 that a hashed index stores for a field's value: the first eight bytes of an MD5 of the seed, the
 * value's canonical type and the value (`BSONElementHasher::hash64`, src/mongo/db/hasher.cpp). The server hashes a number
 * as an integer, so that equal numbers of all types have the same hash. Returns null if the hash is not computed here:
 * for documents, decimals and types that are impossible or unusual in a key, and for all values on a host without MD5
 * (FIPS).
 */
export function hashedValue(value: TypedValue): TypedValue | null {
  const type = canonicalTypes.get(value[0] as number)
  const content = type === numberType ? integerOf(value) : value.subarray(1)
  if (type === undefined || content === null) return null
  const hashed: Buffer = Buffer.alloc(8 + content.length)
  hashed.writeInt32LE(type, 4) // The first four bytes are the seed, which is 0.
  content.copy(hashed, 8)
  const digest = md5(hashed)
  return digest && Buffer.concat([Buffer.from([bsonType.int64]), digest.subarray(0, 8)])
}

function md5(content: Buffer): Buffer | null {
  try {
    return hash('md5', content, 'buffer')
  } catch {
    return null
  }
}

const numberType = 10
/** The server's number for each type (`canonicalizeBSONType`, src/mongo/bson/bsontypes.h). */
const canonicalTypes = new Map<number, number>([
  [bsonType.null, 5],
  [bsonType.int32, numberType],
  [bsonType.int64, numberType],
  [bsonType.double, numberType],
  [bsonType.string, 15],
  [bsonType.binary, 30],
  [bsonType.objectId, 35],
  [bsonType.boolean, 40],
  [0x09, 45], // date
  [bsonType.timestamp, 47],
])

/** The number as an int64, without its fraction, as the server converts it (`safeNumberLongForHash`). */
function integerOf(value: TypedValue): Buffer {
  if (value[0] === bsonType.int64) return value.subarray(1)
  const number = value[0] === bsonType.int32 ? value.readInt32LE(1) : value.readDoubleLE(1)
  const integer: Buffer = Buffer.alloc(8)
  if (Number.isNaN(number)) return integer
  // The server converts 2^63 itself, which is too large, to the smallest int64, and all larger numbers to the largest.
  if (number === 2 ** 63 || number < -(2 ** 63)) integer.writeBigInt64LE(-(2n ** 63n))
  else if (number > 2 ** 63) integer.writeBigInt64LE(2n ** 63n - 1n)
  else integer.writeBigInt64LE(BigInt(Math.trunc(number)))
  return integer
}
