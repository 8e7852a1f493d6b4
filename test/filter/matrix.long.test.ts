import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { migrateFiltered } from '../faults/filtered.ts'

/** A fixed sample of what `npm run chaos -- --filters 48` runs in full: every form of include, of exclude, and of both. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ oplogSizeMB: 1_024 })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

const sample: [seed: number, what: string, state: 'COMMITTED' | 'FAILED'][] = [
  [5, 'exclude databaseRegex, collectionsRegex', 'COMMITTED'],
  [26, 'include database, collectionsRegex; exclude databaseRegex, collectionsRegex', 'COMMITTED'],
  // Four renames over the edge.
  [34, 'include databaseRegex, collections', 'FAILED'],
]

test.each(sample)('4.5: seed %i, %s: %s, and the others stay as they were', async (seed, what, state) => {
  const result = await migrateFiltered(pair, seed)
  expect(result.filter.what).toBe(what)
  expect(result).toMatchObject({ state, problems: [] })
  if (state === 'FAILED') expect(result.crossings).not.toEqual([])
  else expect(result.documents).toBeGreaterThan(20)
})
