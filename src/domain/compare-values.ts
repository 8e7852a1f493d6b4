import { bsonType, decimalParts, embedded, readFields, type TypedValue } from './raw-bson.ts'

/**
 * Compares two values as the server orders them under the simple collation
 * (https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/). A decimal128 is compared by its nearest
 * double, so the result may be wrong for a decimal128 and a number that is equal to it or very close. DBPointer and
 * code with scope are compared by their bytes, which is not always the server's order.
 */
export function compareValues(one: TypedValue, other: TypedValue): number {
  const [order, otherOrder] = [orderOf(one), orderOf(other)]
  if (order !== otherOrder) return order - otherOrder
  switch (one[0]) {
    case bsonType.minKey:
    case bsonType.maxKey:
      return 0
    case bsonType.int32:
    case bsonType.int64:
    case bsonType.double:
    case bsonType.decimal128:
      return compareNumbers(numeric(one), numeric(other))
    case bsonType.string:
    case symbolType:
    case codeType:
      return Buffer.compare(one.subarray(5), other.subarray(5))
    case bsonType.document:
    case bsonType.array:
      return compareFields(one, other)
    case bsonType.binary:
      return one.length - other.length || Buffer.compare(one.subarray(5), other.subarray(5))
    case dateType:
      return compareNumbers(one.readBigInt64LE(1), other.readBigInt64LE(1))
    case bsonType.timestamp:
      return compareNumbers(one.readBigUInt64LE(1), other.readBigUInt64LE(1))
    default:
      return Buffer.compare(one, other)
  }
}

/** Compares two lists of values of the same fields, field by field. */
export function compareKeys(one: readonly TypedValue[], other: readonly TypedValue[]): number {
  for (const [at, value] of one.entries()) {
    const compared = compareValues(value, other[at] as TypedValue)
    if (compared !== 0) return compared
  }
  return 0
}

const dateType = 0x09
const dbPointerType = 0x0c
const codeType = 0x0d
const symbolType = 0x0e

/** The types in the server's order. Types in one row are compared by value. */
const typeOrder: readonly (readonly number[])[] = [
  [bsonType.minKey],
  [bsonType.undefined],
  [bsonType.null],
  [bsonType.int32, bsonType.int64, bsonType.double, bsonType.decimal128],
  [bsonType.string, symbolType],
  [bsonType.document],
  [bsonType.array],
  [bsonType.binary],
  [bsonType.objectId],
  [bsonType.boolean],
  [dateType],
  [bsonType.timestamp],
  [bsonType.regex],
  [dbPointerType],
  [codeType],
  [bsonType.codeWithScope],
  [bsonType.maxKey],
]
const orders = new Map(typeOrder.flatMap((types, order) => types.map((type) => [type, order] as const)))

function orderOf(value: TypedValue): number {
  return orders.get(value[0] as number) ?? typeOrder.length
}

function compareFields(one: TypedValue, other: TypedValue): number {
  const [fields, others] = [readFields(embedded(one)), readFields(embedded(other))]
  for (const [at, { name, value }] of fields.entries()) {
    const against = others[at]
    if (!against) return 1
    const compared =
      orderOf(value) - orderOf(against.value) ||
      (one[0] === bsonType.array ? 0 : Buffer.compare(Buffer.from(name), Buffer.from(against.name))) ||
      compareValues(value, against.value)
    if (compared !== 0) return compared
  }
  return fields.length - others.length
}

/**
 * Returns the value of a number. An int64 becomes a bigint, because JavaScript compares a bigint with a number by their
 * exact values.
 */
function numeric(value: TypedValue): number | bigint {
  switch (value[0]) {
    case bsonType.int32:
      return value.readInt32LE(1)
    case bsonType.int64:
      return value.readBigInt64LE(1)
    case bsonType.double:
      return value.readDoubleLE(1)
    default: {
      const { special, negative, coefficient, exponent } = decimalParts(value, 1)
      if (special === 'NaN') return Number.NaN
      const size = special === 'Infinity' ? Number.POSITIVE_INFINITY : Number(`${coefficient}e${exponent}`)
      return negative ? -size : size
    }
  }
}

/** NaN is less than every other number, and equal to itself. */
function compareNumbers(one: number | bigint, other: number | bigint): number {
  if (one < other) return -1
  if (one > other) return 1
  return Number(Number.isNaN(other)) - Number(Number.isNaN(one))
}
