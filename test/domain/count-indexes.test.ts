import fc from 'fast-check'
import { Int32 } from 'mongodb'
import { expect, test } from 'vitest'
import { countIndexes } from '../../src/domain/count-indexes.ts'
import { type IndexSpecification, indexName } from '../../src/domain/definition.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import { nested, rawDocument } from '../support/bson-values.ts'

const index = (name: string, field: string, traits: Record<string, unknown> = {}): IndexSpecification =>
  readFields(
    rawDocument([
      ['v', new Int32(2)],
      ['key', nested([[field, new Int32(1)]])],
      ['name', name],
      ...Object.entries(traits),
    ]),
  )
const wanted = [
  index('a', 'a'),
  index('a unique', 'a', { unique: true }),
  index('b', 'b', { expireAfterSeconds: new Int32(60) }),
  index('c', 'c', { hidden: true }),
  index('d', 'd'),
]

test.each([
  ['before the collection exists', { buildsIndexes: false, refused: [], restored: false }, [5, 0, 0, 0]],
  ['until the commit', { buildsIndexes: true, refused: [], restored: false }, [5, 4, 3, 0]],
  ['while the destination refuses one index', { buildsIndexes: true, refused: ['b'], restored: false }, [5, 3, 2, 1]],
  ['after the commit', { buildsIndexes: true, refused: [], restored: true }, [5, 5, 0, 0]],
])('%s, each index is counted by its state', (_when, state, [total, built, heldBack, missing]) => {
  expect(countIndexes(wanted, state)).toEqual({ total, built, heldBack, missing })
})

test('property: built and missing indexes never exceed the total, and equal it after the commit', () => {
  const refusals = fc.subarray(wanted.map(indexName))
  fc.assert(
    fc.property(fc.subarray(wanted), refusals, fc.boolean(), (indexes, refused, restored) => {
      const { total, built, heldBack, missing } = countIndexes(indexes, { buildsIndexes: true, refused, restored })
      expect(built + missing).toBeLessThanOrEqual(total)
      expect(heldBack).toBeLessThanOrEqual(total - missing)
      if (restored) expect([built + missing, heldBack]).toEqual([total, 0])
    }),
  )
})
