import { bsonType, decimalParts, findSpan, nameOf, scopeStart, spans } from '../domain/raw-bson.ts'

/**
 * Identifies the same document on two clusters. Two documents are the same if the server treats their `_id`s as equal:
 * 1, NumberLong(1) and 1.0 are equal, at any depth. The audit has an implementation of its own, so that it can detect
 * bugs in the one that routes changes.
 */

const symbolType = 0x0e

/** Returns a text that is equal for two documents if and only if their `_id`s are equal under the simple collation. */
export function identityKey(document: Buffer): string {
  const id = findSpan(document, '_id')
  return id === null ? '' : valueKey(document, id.type, id.valueStart, id.valueEnd)
}

function valueKey(bytes: Buffer, type: number, start: number, end: number): string {
  switch (type) {
    case bsonType.int32:
      return numberKey(BigInt(bytes.readInt32LE(start)), 0, 0)
    case bsonType.int64:
      return numberKey(bytes.readBigInt64LE(start), 0, 0)
    case bsonType.double:
      return doubleKey(bytes.readBigUInt64LE(start))
    case bsonType.decimal128:
      return decimalKey(bytes, start)
    case bsonType.string:
    case symbolType:
      return `s${bytes.latin1Slice(start + 4, end)}`
    case bsonType.document:
    case bsonType.array:
      return `${type}{${partsKey(bytes, type, start)}`
    case bsonType.codeWithScope: {
      const scope = scopeStart(bytes, start)
      const code = bytes.latin1Slice(start + 8, scope)
      return `${type}(${code.length}:${code}${partsKey(bytes, bsonType.document, scope)}`
    }
    default:
      return `${type}:${bytes.latin1Slice(start, end)}`
  }
}

/** Puts the length before each name and value, so that two different lists never give the same text. */
function partsKey(bytes: Buffer, type: number, start: number): string {
  let key = ''
  for (const span of spans(bytes, start)) {
    const name = type === bsonType.array ? '' : nameOf(bytes, span)
    const value = valueKey(bytes, span.type, span.valueStart, span.valueEnd)
    key += `${name.length}:${name}${value.length}:${value}`
  }
  return key
}

/**
 * Returns the key of the number coefficient × 2^twos × 5^fives, in its unique form with a coefficient that is divisible
 * by neither 2 nor 5. Binary and decimal numbers are converted to this form without rounding and without large powers.
 */
function numberKey(coefficient: bigint, twos: number, fives: number): string {
  if (coefficient === 0n) return 'n0'
  let [rest, two, five] = [coefficient, twos, fives]
  while ((rest & 1n) === 0n) {
    rest >>= 1n
    two += 1
  }
  while (rest % 5n === 0n) {
    rest /= 5n
    five += 1
  }
  return `n${rest},${two},${five}`
}

/** Returns the key of an IEEE 754 binary64 with these bits. */
function doubleKey(bits: bigint): string {
  const negative = bits >> 63n === 1n
  const exponent = Number((bits >> 52n) & 0x7ffn)
  const fraction = bits & 0xf_ffff_ffff_ffffn
  if (exponent === 0x7ff) return fraction === 0n ? infinityKey(negative) : 'nNaN'
  const magnitude = exponent === 0 ? fraction : fraction | (1n << 52n)
  return numberKey(negative ? -magnitude : magnitude, (exponent || 1) - 1075, 0)
}

function decimalKey(bytes: Buffer, start: number): string {
  const { special, negative, coefficient, exponent } = decimalParts(bytes, start)
  if (special === 'NaN') return 'nNaN'
  if (special === 'Infinity') return infinityKey(negative)
  return numberKey(negative ? -coefficient : coefficient, exponent, exponent)
}

function infinityKey(negative: boolean): string {
  return negative ? 'n-Infinity' : 'nInfinity'
}
