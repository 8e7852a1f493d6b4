import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { migrateFiltered } from '../faults/filtered.ts'

/** Runs a fixed sample of the cases of `npm run chaos -- --filters 48`, which has every form of include, of exclude, and of both. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ oplogSizeMB: 1_024 })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

const sample: [seed: number, what: string][] = [
  [5, 'exclude databaseRegex, collectionsRegex'],
  [26, 'include database, collectionsRegex; exclude databaseRegex, collectionsRegex'],
  // With this seed, four renames lead out of or into the filter.
  [34, 'include databaseRegex, collections'],
]

test.each(sample)(
  '4.5: seed %i, %s: selected collections are equal, and other collections do not change',
  async (seed, what) => {
    const result = await migrateFiltered(pair, seed)
    expect(result.filter.what).toBe(what)
    expect(result.problems).toEqual([])
    if (seed === 34) expect(result.crossings).not.toEqual([])
    expect(result.documents).toBeGreaterThan(20)
  },
)
