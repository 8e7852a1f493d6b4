import { describe, expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { ShardedPair, start } from '../support/sharded-pair.ts'
import { ShardedWorkload, zonesOf } from '../support/sharded-workload.ts'

const seed = process.env['TANDEM_SEED'] ?? 'one'

async function migrate(pair: ShardedPair, options: Record<string, unknown> = {}, repeated = false): Promise<void> {
  const workload = new ShardedWorkload(pair.sourceUri, pair.source ?? null, seed, { repeated })
  try {
    await workload.create()
    let tandem = await pair.startTandem()
    expect(await start(tandem, options)).toMatchObject({ status: 200, body: { success: true } })
    await workload.run(60)
    await tandem.kill9()
    tandem = await pair.startTandem()
    await workload.run(40)
    await canCommit(tandem)
    await workload.run(60)
    await commit(tandem)
    if (repeated) {
      const ids = { _id: '$_id', n: { $sum: 1 } }
      const shared = [{ $group: ids }, { $match: { n: 2 } }]
      const found = await pair.destinationClient.db('app').collection('repeated').aggregate(shared).toArray()
      expect(found.length).toBeGreaterThan(50)
      expect(await zonesOf(pair.destinationClient)).toBe(await zonesOf(pair.sourceClient))
      expect(await zonesOf(pair.sourceClient)).toContain('upper')
    }
    await pair.expectEqual(pair.source ? undefined : ShardedWorkload.shardKeys)
    expect(workload.counts['replace']).toBeGreaterThan(20)
  } finally {
    await workload.close()
  }
}

describe('a sync from two shards to two', () => {
  // With equal names of the shards, the zones of the source are copied.
  const pair = new ShardedPair({ name: 'workload' }, { name: 'workload' })
  test('ends equal after a random workload with moving documents and chunks, documents that share an _id, and a kill', () =>
    migrate(pair, {}, true))
})

describe('a sync from two shards to three', () => {
  const pair = new ShardedPair({}, { shards: 3 })
  test('ends equal after a random workload with moving documents and chunks, and a kill', async () => {
    await migrate(pair)
    for (const documents of await pair.spread('hashedField')) expect(documents).toBeGreaterThan(0)
    for (const documents of await pair.spread('ranged')) expect(documents).toBeGreaterThan(0)
  })
})

describe('a sync from two shards to a replica set', () => {
  const pair = new ShardedPair({}, 'replicaSet')
  test('ends equal after a random workload with moving documents and chunks, and a kill', () => migrate(pair))
})

describe.each([
  ['a replica set', 'replicaSet'],
  ['a replica set of 5.0', 'replicaSet 5.0'],
] as const)('a sync from %s to two shards', (_what, source) => {
  const pair = new ShardedPair(source, {})
  test('ends equal after a random workload that changes future shard keys, and a kill', async () => {
    const sharding = { shardingEntries: ShardedWorkload.shardingEntries, createSupportingIndexes: false }
    await migrate(pair, { sharding })
    for (const documents of await pair.spread('ranged')) expect(documents).toBeGreaterThan(0)
  })
})
