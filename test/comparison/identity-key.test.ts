import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { identityKey } from '../../src/comparison/identity-key.ts'
import type { TypedValue } from '../../src/domain/raw-bson.ts'
import { documentOf } from '../domain/bson-arbitraries.ts'
import { anyPair, equalPair, innerPair, type Pair, rareSpellings, strangers } from '../domain/spelled-values.ts'

/** `equal` of a pair is a model of what the server treats as equal. id-value.mongo.test.ts checks it against a real server. */
describe('the identity of a document', () => {
  const keyOf = (value: TypedValue) => identityKey(documentOf([{ name: '_id', value }]))

  test.each<[string, fc.Arbitrary<Pair>]>([
    ['in different spellings', equalPair],
    ['that differ slightly', anyPair],
    ['of unrelated values', strangers],
    ['inside other values', innerPair],
    ...Object.entries(rareSpellings).map(([name, pair]) => [`that are ${name}`, pair] as [string, fc.Arbitrary<Pair>]),
  ])('is the same for two _ids %s if and only if the server treats them as equal', (_, arbitrary) => {
    fc.assert(
      fc.property(arbitrary, ({ one, other, equal }) => {
        expect(keyOf(one) === keyOf(other)).toBe(equal)
      }),
      { numRuns: 1_000, seed: 7 },
    )
  })
})
