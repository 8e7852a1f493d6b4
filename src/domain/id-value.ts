import { bsonType, decimalParts, scopeStart, spans } from './raw-bson.ts'

/**
 * Returns a text that identifies an `_id`: two `_id`s have the same text if and only if the server treats them as equal
 * under the simple collation. The server compares numbers by value, across types and at any depth, and everything else by
 * type and bytes, except that a symbol equals a string.
 */
export function idValueKey(bytes: Buffer, type: number, start: number, end: number): string {
  switch (type) {
    case bsonType.int32:
      return `n${bytes.readInt32LE(start)}`
    case bsonType.int64:
      return `n${bytes.readBigInt64LE(start)}`
    case bsonType.double:
      return `n${exactDouble(bytes.readDoubleLE(start))}`
    case bsonType.decimal128:
      return `n${exactDecimal(bytes, start)}`
    case bsonType.codeWithScope: {
      const scope = scopeStart(bytes, start)
      return `${type}:${bytes.latin1Slice(start + 4, scope)}${idValueKey(bytes, bsonType.document, scope, end)}`
    }
    case bsonType.document:
    case bsonType.array: {
      let key = `${type}{`
      for (const span of spans(bytes, start)) {
        // The server ignores the field names of an array.
        const name = type === bsonType.array ? '' : bytes.latin1Slice(span.nameStart, span.nameEnd)
        const value = idValueKey(bytes, span.type, span.valueStart, span.valueEnd)
        key += `${name.length}:${name}=${value.length}:${value},`
      }
      return `${key}}`
    }
    default:
      return `${type === symbolType ? bsonType.string : type}:${bytes.latin1Slice(start, end)}`
  }
}

const symbolType = 0x0e

/** True if a value of this type may equal a value with other bytes or another type. */
export function hasSeveralEncodings(type: number): boolean {
  return (
    type === bsonType.int32 ||
    type === bsonType.int64 ||
    type === bsonType.double ||
    type === bsonType.decimal128 ||
    type === bsonType.document ||
    type === bsonType.codeWithScope ||
    // A symbol equals a string with the same text.
    type === bsonType.string ||
    type === symbolType
  )
}

/** The exact decimal value of a double, in the form of `scientific`. */
function exactDouble(value: number): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? 'Infinity' : '-Infinity'
  if (Number.isInteger(value)) return BigInt(value).toString()
  let scaled = value
  let twos = 0
  while (!Number.isInteger(scaled)) {
    scaled *= 2
    twos += 1
  }
  // value = scaled / 2^twos = scaled * 5^twos / 10^twos
  return scientific(BigInt(scaled) * 5n ** BigInt(twos), -twos)
}

function exactDecimal(bytes: Buffer, start: number): string {
  const { special, negative, coefficient, exponent } = decimalParts(bytes, start)
  if (special === 'NaN') return 'NaN'
  if (special) return negative ? '-Infinity' : 'Infinity'
  return scientific(negative ? -coefficient : coefficient, exponent)
}

/** Formats coefficient × 10^exponent in one normal form: integers in full, fractions as coefficient and exponent. */
function scientific(coefficient: bigint, exponent: number): string {
  if (coefficient === 0n) return '0'
  let digits = coefficient
  let power = exponent
  while (digits % 10n === 0n && power < 0) {
    digits /= 10n
    power += 1
  }
  return power >= 0 ? (digits * 10n ** BigInt(power)).toString() : `${digits}e${power}`
}
