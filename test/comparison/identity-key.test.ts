import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { identityKey } from '../../src/comparison/identity-key.ts'
import type { TypedValue } from '../../src/domain/raw-bson.ts'
import { documentOf } from '../domain/bson-arbitraries.ts'
import { anyPair, equalPair, innerPair, type Pair, rareSpellings, strangers } from '../domain/spelled-values.ts'

/** The model of these pairs is held against a real server in id-value.mongo.test.ts. */
describe('the identity of a document', () => {
  const keyOf = (value: TypedValue) => identityKey(documentOf([{ name: '_id', value }]))

  test.each<[string, fc.Arbitrary<Pair>]>([
    ['spelled differently', equalPair],
    ['that differ by little', anyPair],
    ['of different make', strangers],
    ['within others', innerPair],
    ...Object.entries(rareSpellings).map(([name, pair]) => [`that are ${name}`, pair] as [string, fc.Arbitrary<Pair>]),
  ])('two _ids %s are one when the server says so', (_, arbitrary) => {
    fc.assert(
      fc.property(arbitrary, ({ one, other, equal }) => {
        expect(keyOf(one) === keyOf(other)).toBe(equal)
      }),
      { numRuns: 1_000, seed: 7 },
    )
  })
})
