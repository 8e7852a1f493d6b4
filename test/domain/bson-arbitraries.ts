import fc from 'fast-check'
import type { RawFields, TypedValue } from '../../src/domain/raw-bson.ts'

/** Generates the bytes of BSON values of every type. To be independent of the code under test, this file writes lengths and terminators itself. */

const bytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((some) => Buffer.from(some))

export function typed(type: number, ...payload: Buffer[]): TypedValue {
  return Buffer.concat([Buffer.from([type]), ...payload])
}

export function int32(value: number): Buffer {
  const written = Buffer.alloc(4)
  written.writeInt32LE(value)
  return written
}

/** Returns the length, the bytes and a NUL. Strings, code and symbols may contain a NUL and need not be UTF-8. */
export function lengthPrefixed(text: Buffer): Buffer {
  return Buffer.concat([int32(text.length + 1), text, Buffer.from([0])])
}

export function cString(text: Buffer): Buffer {
  return Buffer.concat([text.filter((byte) => byte !== 0) as Buffer, Buffer.from([0])])
}

const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }).map((text) => Buffer.from(text)),
  fc.uint8Array({ maxLength: 20 }).map((some) => Buffer.from(some)),
)

/** Names that often break decoders, and arbitrary names without NUL. */
export const anyName: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom('', '0', '10', '2', 'a', 'a.b', '$set', '__proto__', 'constructor', 'é', '😀', '_id'),
  fc.string({ unit: 'binary', maxLength: 12 }).map((name) => Buffer.from(name.replaceAll('\0', '')).toString()),
)

/** Joins elements into the bytes of a document, independently of `buildDocument`, which is under test. */
function joined(elements: readonly { name: string; value: Buffer }[]): Buffer {
  const body = elements.flatMap(({ name, value }) => [
    value.subarray(0, 1),
    Buffer.from(`${name}\0`),
    value.subarray(1),
  ])
  const length = body.reduce((sum, part) => sum + part.length, 5)
  return Buffer.concat([int32(length), ...body, Buffer.from([0])])
}

const scalars: Record<string, fc.Arbitrary<TypedValue>> = {
  double: bytes(8).map((bits) => typed(0x01, bits)),
  string: anyText.map((text) => typed(0x02, lengthPrefixed(text))),
  binary: fc.tuple(anyText, fc.integer({ min: 0, max: 255 })).map(([content, subtype]) => {
    // The old binary subtype carries its length a second time.
    const whole = subtype === 2 ? Buffer.concat([int32(content.length), content]) : content
    return typed(0x05, int32(whole.length), Buffer.from([subtype]), whole)
  }),
  undefined: fc.constant(typed(0x06)),
  objectId: bytes(12).map((id) => typed(0x07, id)),
  boolean: fc.constantFrom(typed(0x08, Buffer.from([0])), typed(0x08, Buffer.from([1]))),
  date: bytes(8).map((milliseconds) => typed(0x09, milliseconds)),
  null: fc.constant(typed(0x0a)),
  regularExpression: fc
    .tuple(anyText, fc.subarray([...'imsx']))
    .map(([pattern, flags]) => typed(0x0b, cString(pattern), cString(Buffer.from(flags.join(''))))),
  dbPointer: fc.tuple(anyText, bytes(12)).map(([name, id]) => typed(0x0c, lengthPrefixed(name), id)),
  code: anyText.map((text) => typed(0x0d, lengthPrefixed(text))),
  symbol: anyText.map((text) => typed(0x0e, lengthPrefixed(text))),
  int32: bytes(4).map((value) => typed(0x10, value)),
  timestamp: bytes(8).map((value) => typed(0x11, value)),
  int64: bytes(8).map((value) => typed(0x12, value)),
  decimal128: bytes(16).map((value) => typed(0x13, value)),
  minKey: fc.constant(typed(0xff)),
  maxKey: fc.constant(typed(0x7f)),
}

const nesting = fc.letrec<{ value: TypedValue; document: Buffer }>((tie) => ({
  document: fc
    .array(fc.record({ name: anyName, value: tie('value') }), { maxLength: 5, depthIdentifier: 'bson' })
    .map(joined),
  value: fc.oneof(
    { depthIdentifier: 'bson', depthSize: 'small', withCrossShrink: true },
    fc.oneof(...Object.values(scalars)),
    tie('document').map((document) => typed(0x03, document)),
    fc
      .array(tie('value'), { maxLength: 4, depthIdentifier: 'bson' })
      .map((items) => typed(0x04, joined(items.map((value, index) => ({ name: String(index), value }))))),
    fc.tuple(anyText, tie('document')).map(([text, scope]) => {
      const code = lengthPrefixed(text)
      return typed(0x0f, int32(4 + code.length + scope.length), code, scope)
    }),
  ),
}))

/** A value of any BSON type, including nested ones. */
export const anyValue: fc.Arbitrary<TypedValue> = nesting.value

/** The fields of a document in their order. Names may repeat. */
export const anyFields: fc.Arbitrary<RawFields> = fc.array(fc.record({ name: anyName, value: anyValue }), {
  maxLength: 8,
})

/** One value of each scalar type and of each type that contains others, for tests that must not miss a type. */
export const oneOfEveryType: fc.Arbitrary<TypedValue[]> = fc
  .tuple(...Object.values(scalars), nesting.document, fc.array(anyValue, { maxLength: 3 }))
  .map((parts) => {
    const items = parts.at(-1) as TypedValue[]
    const document = parts.at(-2) as Buffer
    const code = lengthPrefixed(Buffer.from('code'))
    return [
      ...(parts.slice(0, -2) as TypedValue[]),
      typed(0x03, document),
      typed(0x04, joined(items.map((value, index) => ({ name: String(index), value })))),
      typed(0x0f, int32(4 + code.length + document.length), code, document),
    ]
  })

export const documentOf = (fields: RawFields): Buffer => joined(fields)
