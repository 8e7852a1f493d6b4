import fc from 'fast-check'
import { expect, it } from 'vitest'
import { compareKeys, compareValues } from '../../src/domain/compare-values.ts'
import {
  bsonType,
  embedded,
  fieldNamed,
  readFields,
  type TypedValue,
  typedDouble,
  typedInt32,
} from '../../src/domain/raw-bson.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { oneSet } from '../mongo/one-set.ts'
import { anyValue, documentOf, oneOfEveryType } from './bson-arbitraries.ts'

const one = oneSet()

/**
 * Returns whether this test can sort the value on the server. The server's sort orders an array by one of its elements, unless
 * the array is nested. It orders two types by rules that no shard key needs, and refuses random content of one binary subtype.
 */
function isSortable(value: TypedValue, isNested = false): boolean {
  switch (value[0]) {
    case bsonType.codeWithScope:
    case dbPointerType:
      return false
    case bsonType.binary:
      return value[5] !== columnSubtype
    case bsonType.array:
      return isNested && readFields(embedded(value)).every((field) => isSortable(field.value, true))
    case bsonType.document:
      return readFields(embedded(value)).every((field) => isSortable(field.value, true))
    default:
      return true
  }
}
const dbPointerType = 0x0c
const columnSubtype = 7

it('orders values as the server does', async () => {
  const numbers = fc.oneof(
    fc.integer({ min: -3, max: 3 }).map((value) => typedInt32(value)),
    fc.double({ min: -3, max: 3 }).map((value) => typedDouble(value)),
  )
  const some = fc.tuple(oneOfEveryType, fc.array(anyValue, { maxLength: 50 }), fc.array(numbers, { maxLength: 20 }))
  const things = one.client.db('app').collection('things')
  await fc.assert(
    fc.asyncProperty(some, async (groups) => {
      await things.deleteMany({})
      const values = groups.flat().filter((value) => isSortable(value))
      const documents = values.map((v, at) =>
        documentOf([
          { name: '_id', value: typedInt32(at) },
          { name: 'v', value: v },
        ]),
      )
      await one.cluster.write('app', { insert: 'things', documents: rawSequence('documents', documents) })
      const sorted = (await RawCursor.readAll(one.cluster, 'app', { find: 'things', sort: { v: 1 } })).map(
        (document) => fieldNamed(readFields(document), 'v') as TypedValue,
      )
      expect(sorted).toHaveLength(values.length)
      for (const [at, value] of sorted.slice(1).entries()) {
        const [before, after] = [sorted[at] as TypedValue, value]
        expect(
          compareValues(before, after),
          `${before.toString('hex')} and ${after.toString('hex')}`,
        ).toBeLessThanOrEqual(0)
        expect(compareValues(after, before)).toBeGreaterThanOrEqual(0)
      }
    }),
    { numRuns: 40 },
  )
})

it('orders keys by their first field that differs', () => {
  const [one, two] = [typedInt32(1), typedInt32(2)]
  expect(compareKeys([one, two], [typedDouble(1), two])).toBe(0)
  expect(compareKeys([one, two], [two, one])).toBeLessThan(0)
  expect(compareKeys([one, two], [one, one])).toBeGreaterThan(0)
})
