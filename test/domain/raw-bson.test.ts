import fc from 'fast-check'
import { BSON } from 'mongodb'
import { describe, expect, it } from 'vitest'
import {
  bsonType,
  buildDocument,
  embedded,
  fieldNamed,
  findSpan,
  isTruthy,
  nameOf,
  numberOf,
  readFields,
  spans,
  stringOf,
  typedDocument,
  typedInt32,
  typedValue,
} from '../../src/domain/raw-bson.ts'
import { doubleBits, rawDocument } from '../support/bson-values.ts'
import {
  anyFields,
  anyName,
  anyValue,
  documentOf,
  int32,
  lengthPrefixed,
  oneOfEveryType,
  typed,
} from './bson-arbitraries.ts'

/** Returns the elements that the parser of js-bson finds: their types, and the positions of their names and values. */
const elementsOf = (document: Buffer) =>
  [...BSON.onDemand.parseToElements(document)].map(([type, nameStart, nameLength, valueStart, length]) => {
    // For some types, the length of js-bson does not include the bytes before the content, so it does not give the end of the value.
    return { type, nameStart, nameEnd: nameStart + nameLength, valueStart, length }
  })

describe('reading and building', () => {
  it('property: reproduces the same bytes, whatever the types, the names and their order', () => {
    fc.assert(
      fc.property(anyFields, (fields) => {
        const document = documentOf(fields)
        const read = readFields(document)
        expect(read).toEqual(fields)
        expect(buildDocument(read)).toEqual(document)
      }),
      { numRuns: 500 },
    )
  })

  it('property: supports every BSON type', () => {
    fc.assert(
      fc.property(oneOfEveryType, (values) => {
        const document = documentOf(values.map((value, index) => ({ name: `f${index}`, value })))
        expect(new Set(readFields(document).map(({ value }) => value[0])).size).toBe(21)
        expect(buildDocument(readFields(document))).toEqual(document)
      }),
      { numRuns: 100 },
    )
  })

  it('property: finds the same elements as js-bson, without gaps between them', () => {
    fc.assert(
      fc.property(anyFields, (fields) => {
        const document = documentOf(fields)
        const found = [...spans(document)]
        expect(
          found.map(({ type, nameStart, nameEnd, valueStart }) => ({ type, nameStart, nameEnd, valueStart })),
        ).toEqual(elementsOf(document).map(({ length: _, ...rest }) => rest))
        let position = 4
        for (const span of found) {
          expect(span.start).toBe(position)
          position = span.valueEnd
        }
        expect(position).toBe(document.length - 1)
      }),
      { numRuns: 300 },
    )
  })

  it('property: reads a document in the middle of a larger buffer in the same way as the document alone', () => {
    fc.assert(
      fc.property(
        anyFields,
        fc.uint8Array({ maxLength: 9 }),
        fc.uint8Array({ maxLength: 9 }),
        (fields, before, after) => {
          const document = documentOf(fields)
          const whole = Buffer.concat([before, document, after])
          expect(readFields(whole, before.length)).toEqual(readFields(document))
        },
      ),
    )
  })

  it('copies values, so that they do not change when the buffer from which they were read changes', () => {
    const document = documentOf([{ name: 'a', value: typedInt32(7) }])
    const [field] = readFields(document)
    document.fill(0)
    expect(numberOf(field?.value)).toBe(7)
  })

  it('refuses a type that does not exist', () => {
    const document = documentOf([{ name: 'a', value: typedInt32(1) }])
    document[4] = 0x14
    expect(() => [...spans(document)]).toThrow(/unknown BSON type 0x14/)
  })
})

describe('findSpan', () => {
  it('finds the first of several elements with the same name', () => {
    const document = rawDocument([
      ['b', 1],
      ['a', 2],
      ['a', 3],
    ])
    const span = findSpan(document, 'a')
    expect(span && numberOf(typedValue(document, span))).toBe(2)
    expect(span && nameOf(document, span)).toBe('a')
  })

  it('property: finds an element exactly if the document has one of this name', () => {
    fc.assert(
      fc.property(anyFields, anyName, (fields, name) => {
        // tandem calls findSpan only with ASCII names, because findSpan compares names as bytes.
        fc.pre(/^[\x20-\x7e]*$/.test(name))
        const document = documentOf(fields)
        const span = findSpan(document, name)
        const wanted = fields.find((field) => field.name === name)
        expect(span ? typedValue(document, span) : undefined).toEqual(wanted?.value)
        expect(fieldNamed(readFields(document), name)).toEqual(wanted?.value)
      }),
      { numRuns: 300 },
    )
  })
})

describe('typed values', () => {
  it('property: contain the bytes of an embedded document unchanged', () => {
    fc.assert(
      fc.property(anyFields, (fields) => {
        const document = documentOf(fields)
        expect(embedded(typedDocument(document))).toEqual(document)
        expect(typedDocument(document)[0]).toBe(bsonType.document)
      }),
    )
  })

  it('property: are decoded as text only if they are strings', () => {
    fc.assert(
      fc.property(anyValue, (value) => {
        if (value[0] !== bsonType.string) expect(stringOf(value)).toBeUndefined()
      }),
    )
    expect(stringOf(typed(bsonType.string, lengthPrefixed(Buffer.from('é\0😀'))))).toBe('é\0😀')
    expect(stringOf(undefined)).toBeUndefined()
  })

  it.each([
    ['true', typed(bsonType.boolean, Buffer.from([1])), true, undefined],
    ['false', typed(bsonType.boolean, Buffer.from([0])), false, undefined],
    ['int32 -1', typedInt32(-1), true, -1],
    ['int32 0', typedInt32(0), false, 0],
    ['int64 2^31', typed(bsonType.int64, int32(-2147483648), int32(0)), true, 2147483648],
    ['double -0', typed(bsonType.double, doubleBits(1n << 63n).payload), false, -0],
    ['double 0.5', typed(bsonType.double, doubleBits(0x3fe0_0000_0000_0000n).payload), true, 0.5],
    ['null', typed(0x0a), false, undefined],
    ['nothing', undefined, false, undefined],
  ])('are read as a flag and as a number: %s', (_, value, flag, number) => {
    expect(isTruthy(value)).toBe(flag)
    expect(numberOf(value)).toBe(number)
  })
})
