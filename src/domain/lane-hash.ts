import { bsonType, decimalParts, scopeStart, spans } from './raw-bson.ts'

/**
 * Returns a hash of a document's `_id` that is equal for values that the server treats as equal. 1, NumberLong(1), 1.0
 * and NumberDecimal("1") have the same hash, at any depth, and therefore go to the same lane, a queue of changes that
 * are written in order (`Lanes`). So a delete of one encoding and an insert of another keep their order. Different
 * values may have the same hash and then share a lane. The hash does not apply a collation, so a collection with a
 * collation needs a single lane (`needsOneLane`).
 */
export function laneHash(bytes: Buffer, type: number, start: number, end: number): number {
  return mixValue(2166136261, bytes, type, start, end) >>> 0
}

/** FNV-1a. */
function mixByte(hash: number, byte: number): number {
  return Math.imul(hash ^ byte, 16777619)
}

function mixValue(seed: number, bytes: Buffer, type: number, start: number, end: number): number {
  let hash = seed
  switch (type) {
    case bsonType.int32:
      return mixNumber(hash, bytes.readInt32LE(start))
    case bsonType.int64:
      return mixNumber(hash, Number(bytes.readBigInt64LE(start)))
    case bsonType.double:
      return mixNumber(hash, bytes.readDoubleLE(start))
    case bsonType.decimal128:
      return mixNumber(hash, decimalAsNumber(bytes, start))
    case bsonType.codeWithScope: {
      const scope = scopeStart(bytes, start)
      hash = mixByte(hash, type)
      for (let at = start + 4; at < scope; at++) hash = mixByte(hash, bytes[at] as number)
      return mixValue(hash, bytes, bsonType.document, scope, end)
    }
    case bsonType.document:
    case bsonType.array:
      hash = mixByte(hash, type)
      for (const span of spans(bytes, start)) {
        // The server ignores the field names of an array.
        if (type === bsonType.document) {
          for (let at = span.nameStart; at < span.nameEnd; at++) hash = mixByte(hash, bytes[at] as number)
        }
        hash = mixValue(hash, bytes, span.type, span.valueStart, span.valueEnd)
      }
      return hash
    case 0x0e: // A symbol equals a string with the same text.
      hash = mixByte(hash, bsonType.string)
      break
    default:
      hash = mixByte(hash, type)
  }
  for (let at = start; at < end; at++) hash = mixByte(hash, bytes[at] as number)
  return hash
}

const numberTag = 0x01
const scratch = Buffer.alloc(8)

function mixNumber(seed: number, value: number): number {
  let hash = mixByte(seed, numberTag)
  // -0 equals 0, and all NaNs are equal.
  scratch.writeDoubleLE(value === 0 ? 0 : Number.isNaN(value) ? Number.NaN : value)
  for (const byte of scratch) hash = mixByte(hash, byte)
  return hash
}

/**
 * Returns the double nearest to an IEEE 754-2008 decimal128 in binary integer encoding, little-endian at `start`. A
 * decimal that equals an integer or a double therefore gives the same double as that value.
 */
export function decimalAsNumber(bytes: Buffer, start: number): number {
  const { special, negative, coefficient, exponent } = decimalParts(bytes, start)
  if (special === 'NaN') return Number.NaN
  return Number(`${negative ? '-' : ''}${special ?? `${coefficient}E${exponent}`}`)
}
