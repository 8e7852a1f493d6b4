import { afterEach, expect, test } from 'vitest'
import { commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { ReversiblePair, reverse, things } from '../support/reversible-pair.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync } from '../support/tandem-process.ts'
import { untilApplied } from '../support/until-applied.ts'
import { createWorkload } from '../support/workload.ts'

/** The server writes a converted collection without change events, so tandem copies it again. */

const pair = pairedSets()
const reversiblePair = new ReversiblePair({})
let several: Instances | null = null

afterEach(async () => {
  await several?.stop()
  several = null
})

test('two instances without a filter follow convertToCapped under a workload, during the copy and after it', async () => {
  const name = 'convertToCapped under a workload'
  await seedData(pair.source.uri, name, 0.2)
  const app = pair.sourceClient.db('app')
  const names = ['early', 'late', 'again']
  for (const one of names) await app.collection(one).insertMany(Array.from({ length: 2_000 }, (_, n) => ({ n })))
  const convert = (collection: string, size: number) => app.command({ convertToCapped: collection, size })
  const workload = createWorkload({ uri: pair.source.uri, seed: name, ddl: true, transactions: true, opsPerSecond: 20 })
  const ended = new AbortController()
  const writing = workload.run(ended.signal)
  const writes = (async () => {
    for (let n = 0; !ended.signal.aborted; n++) {
      for (const one of names) await app.collection(one).insertOne({ written: n })
    }
  })()
  try {
    several = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
    for (const one of several.members.values()) await startSync(one, {})
    await convert('early', 50_000)
    await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
    await convert('late', 100_000)
    await convert('again', 100_000)
    await convert('again', 30_000)
  } finally {
    ended.abort()
  }
  await Promise.all([writing, writes])
  await untilApplied(pair, [['app', 'late']])
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  expectAccepted(await several.post('commit'))
  await several.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
  expect(await convergencesOf(pair.destinationClient)).toBeGreaterThan(0)
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
})

test('a reversal follows a convertToCapped on the new source', async () => {
  await things(reversiblePair.leftClient).insertMany(Array.from({ length: 500 }, (_, _id) => ({ _id })))
  await using tandem = await reversiblePair.commitSync()
  const { left, right, rightClient } = reversiblePair
  await rightClient.db('app').command({ convertToCapped: 'things', size: 100_000 })
  await things(rightClient).insertOne({ _id: 'between' })
  await reverse(tandem)
  await untilApplied({ source: right, destination: left }, [['app', 'things']])
  await commit(tandem)
  await reversiblePair.expectEqual()
  expect(await things(reversiblePair.leftClient).countDocuments()).toBe(502)
})
