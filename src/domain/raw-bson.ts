/**
 * Reads and builds BSON documents as bytes. Documents travel to the destination as the bytes that the source
 * returned, because js-bson reorders numeric-looking names, collapses duplicate names and narrows numbers. The layout
 * follows https://bsonspec.org/spec.html.
 */

declare global {
  interface Buffer {
    /**
     * Node's own decoders, which its type declarations omit. They are several times faster than toString on short
     * slices.
     */
    latin1Slice(start?: number, end?: number): string
    utf8Slice(start?: number, end?: number): string
  }
}

/** One element of a document: BSON's type byte, and offsets in the buffer that was read. */
export interface ElementSpan {
  type: number
  /** Offset of the type byte. */
  start: number
  nameStart: number
  /** Offset of the NUL that ends the name. */
  nameEnd: number
  valueStart: number
  valueEnd: number
}

export const bsonType = {
  double: 0x01,
  string: 0x02,
  document: 0x03,
  array: 0x04,
  binary: 0x05,
  undefined: 0x06,
  objectId: 0x07,
  boolean: 0x08,
  null: 0x0a,
  regex: 0x0b,
  codeWithScope: 0x0f,
  int32: 0x10,
  timestamp: 0x11,
  int64: 0x12,
  decimal128: 0x13,
  maxKey: 0x7f,
  minKey: 0xff,
} as const

/** Returns the offset after the value of BSON type `type` that begins at `position`. */
export function skipValue(bytes: Buffer, type: number, position: number): number {
  switch (type) {
    case 0x01: // double
    case 0x09: // date
    case 0x11: // timestamp
    case 0x12: // int64
      return position + 8
    case 0x02: // string
    case 0x0d: // code
    case 0x0e: // symbol
      return position + 4 + bytes.readInt32LE(position)
    case 0x03: // document
    case 0x04: // array
    case 0x0f: // code with scope
      return position + bytes.readInt32LE(position)
    case 0x05: // binary
      return position + 5 + bytes.readInt32LE(position)
    case 0x06: // undefined
    case 0x0a: // null
    case 0xff: // minKey
    case 0x7f: // maxKey
      return position
    case 0x07: // objectId
      return position + 12
    case 0x08: // boolean
      return position + 1
    case 0x0b: {
      // regular expression: two C strings
      const pattern = bytes.indexOf(0, position)
      return bytes.indexOf(0, pattern + 1) + 1
    }
    case 0x0c: // DBPointer
      return position + 4 + bytes.readInt32LE(position) + 12
    case 0x10: // int32
      return position + 4
    case 0x13: // decimal128
      return position + 16
    default:
      throw new RangeError(`unknown BSON type 0x${type.toString(16)} at offset ${position}`)
  }
}

/** Yields the elements of the document at `offset`, in order, without decoding values. */
export function* spans(bytes: Buffer, offset = 0): Generator<ElementSpan> {
  const end = offset + bytes.readInt32LE(offset) - 1
  let position = offset + 4
  while (position < end) {
    const start = position
    const type = bytes[start] as number
    const nameEnd = bytes.indexOf(0, start + 1)
    const valueStart = nameEnd + 1
    const valueEnd = skipValue(bytes, type, valueStart)
    yield { type, start, nameStart: start + 1, nameEnd, valueStart, valueEnd }
    position = valueEnd
  }
}

export function nameOf(bytes: Buffer, span: ElementSpan): string {
  return bytes.utf8Slice(span.nameStart, span.nameEnd)
}

/** Returns the first element with this name in the document at `offset`, or null. Compares names as Latin-1 text. */
export function findSpan(bytes: Buffer, name: string, offset = 0): ElementSpan | null {
  for (const span of spans(bytes, offset)) {
    if (span.nameEnd - span.nameStart === name.length && bytes.latin1Slice(span.nameStart, span.nameEnd) === name) {
      return span
    }
  }
  return null
}

/** A value with its type: the type byte, then the bytes of the value. */
export type TypedValue = Buffer

export function typedValue(bytes: Buffer, span: ElementSpan): TypedValue {
  const value = Buffer.allocUnsafe(1 + span.valueEnd - span.valueStart)
  value[0] = span.type
  bytes.copy(value, 1, span.valueStart, span.valueEnd)
  return value
}

/** A document as a list of fields with raw values. `buildDocument` converts it back to the same bytes. */
export type RawFields = { name: string; value: TypedValue }[]

export function readFields(bytes: Buffer, offset = 0): RawFields {
  const fields: RawFields = []
  for (const span of spans(bytes, offset)) fields.push({ name: nameOf(bytes, span), value: typedValue(bytes, span) })
  return fields
}

export function fieldNamed(fields: RawFields, name: string): TypedValue | undefined {
  return fields.find((field) => field.name === name)?.value
}

/** Builds a document of the given fields, in order. */
export function buildDocument(fields: RawFields): Buffer {
  const parts: Buffer[] = [Buffer.alloc(4)]
  for (const { name, value } of fields) {
    parts.push(value.subarray(0, 1), Buffer.from(`${name}\0`, 'utf8'), value.subarray(1))
  }
  parts.push(Buffer.from([0]))
  const document = Buffer.concat(parts)
  document.writeInt32LE(document.length, 0)
  return document
}

/** Returns the bytes of the document or array that is the value, without the type byte. */
export function embedded(value: TypedValue): Buffer {
  return value.subarray(1)
}

export function typedDocument(bytes: Buffer): TypedValue {
  return Buffer.concat([Buffer.from([bsonType.document]), bytes])
}

export function typedInt32(value: number): TypedValue {
  const typed: Buffer = Buffer.alloc(5)
  typed[0] = bsonType.int32
  typed.writeInt32LE(value, 1)
  return typed
}

export function typedDouble(value: number): TypedValue {
  const typed: Buffer = Buffer.alloc(9)
  typed[0] = bsonType.double
  typed.writeDoubleLE(value, 1)
  return typed
}

export function typedString(value: string): TypedValue {
  const text = Buffer.from(value, 'utf8')
  const typed = Buffer.alloc(text.length + 6)
  typed[0] = bsonType.string
  typed.writeInt32LE(text.length + 1, 1)
  text.copy(typed, 5)
  return typed
}

export function typedBoolean(value: boolean): TypedValue {
  return Buffer.from([bsonType.boolean, value ? 1 : 0])
}

/** Decodes a string value, or returns undefined for any other type. */
export function stringOf(value: TypedValue | undefined): string | undefined {
  if (value?.[0] !== bsonType.string) return undefined
  return value.utf8Slice(5, value.length - 1)
}

/** True for boolean true and for any non-zero number, as the server interprets its option flags. */
export function isTruthy(value: TypedValue | undefined): boolean {
  const number = numberOf(value)
  if (number !== undefined) return number !== 0
  return value?.[0] === bsonType.boolean && value[1] === 1
}

/** Returns an int32, int64 or double as a JavaScript number, and undefined for any other type. */
export function numberOf(value: TypedValue | undefined): number | undefined {
  switch (value?.[0]) {
    case bsonType.int32:
      return value.readInt32LE(1)
    case bsonType.int64:
      return Number(value.readBigInt64LE(1))
    case bsonType.double:
      return value.readDoubleLE(1)
    default:
      return undefined
  }
}

/** Returns the offset of the scope document in a code-with-scope value, which begins with its length and the code. */
export function scopeStart(bytes: Buffer, start: number): number {
  return start + 8 + bytes.readInt32LE(start + 4)
}

const coefficientMax = 10n ** 34n - 1n

/**
 * Decodes an IEEE 754-2008 decimal128 in binary integer encoding, little-endian at `start`. A coefficient out of
 * range is zero, as in the standard and in the server.
 */
export function decimalParts(
  bytes: Buffer,
  start: number,
): { special: 'NaN' | 'Infinity' | null; negative: boolean; coefficient: bigint; exponent: number } {
  const high = bytes.readBigUInt64LE(start + 8)
  const negative = high >> 63n === 1n
  const combination = Number((high >> 58n) & 0x1fn)
  if (combination === 0x1f) return { special: 'NaN', negative, coefficient: 0n, exponent: 0 }
  if (combination === 0x1e) return { special: 'Infinity', negative, coefficient: 0n, exponent: 0 }
  // Both leading combination bits are set: this encoding is for coefficients that are too large for a decimal128.
  if (((high >> 61n) & 3n) === 3n) return { special: null, negative, coefficient: 0n, exponent: 0 }
  const exponent = Number((high >> 49n) & 0x3fffn) - 6176
  const coefficient = ((high & 0x1ffffffffffffn) << 64n) | bytes.readBigUInt64LE(start)
  return { special: null, negative, coefficient: coefficient > coefficientMax ? 0n : coefficient, exponent }
}
