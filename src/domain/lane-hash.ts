import { bsonType, spans } from './raw-bson.ts'

/**
 * A hash of a document's `_id` under which values that the server holds to be equal are equal: 1, NumberLong(1), 1.0
 * and NumberDecimal("1") fall into one lane, at any depth, so that a delete of one spelling and an insert of another
 * keep their order. Values that differ may collide: that only makes them share a lane.
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
    case bsonType.document:
    case bsonType.array:
      hash = mixByte(hash, type)
      for (const span of spans(bytes, start)) {
        for (let at = span.nameStart; at < span.nameEnd; at++) hash = mixByte(hash, bytes[at] as number)
        hash = mixValue(hash, bytes, span.type, span.valueStart, span.valueEnd)
      }
      return hash
    case 0x0e: // a symbol equals the string of the same text
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
  // -0 equals 0, and every NaN equals every other.
  scratch.writeDoubleLE(value === 0 ? 0 : Number.isNaN(value) ? Number.NaN : value)
  for (const byte of scratch) hash = mixByte(hash, byte)
  return hash
}

/**
 * The double nearest to an IEEE 754-2008 decimal128 in binary integer encoding, little-endian at `start`. A decimal
 * that equals an integer or a double gives exactly what that integer or double gives.
 */
export function decimalAsNumber(bytes: Buffer, start: number): number {
  const high = bytes.readBigUInt64LE(start + 8)
  const sign = high >> 63n === 1n ? '-' : ''
  const combination = Number((high >> 58n) & 0x1fn)
  if (combination === 0x1f) return Number.NaN
  if (combination === 0x1e) return Number(`${sign}Infinity`)
  // With both leading combination bits set the coefficient is out of range, which the standard reads as zero.
  if (((high >> 61n) & 3n) === 3n) return 0
  const exponent = Number((high >> 49n) & 0x3fffn) - 6176
  const coefficient = ((high & 0x1ffffffffffffn) << 64n) | bytes.readBigUInt64LE(start)
  return Number(`${sign}${coefficient}E${exponent}`)
}
