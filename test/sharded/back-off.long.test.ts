import { MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import { commit } from '../support/commits.ts'
import { dirtyCache, withoutCheckpoints } from '../support/dirty-cache.ts'
import { ShardedPair, start } from '../support/sharded-pair.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** The copy to a sharded destination backs off when one of its shards is overloaded. */

const pair = new ShardedPair('replicaSet', { extraArgs: withoutCheckpoints })

async function limit(tandem: Tandem, bytesPerSecond: number | null): Promise<void> {
  const body = JSON.stringify({ bytesPerSecond })
  expect((await fetch(`${tandem.url}/api/v1/limits`, { method: 'PATCH', body })).status).toBe(200)
}

it('the dirty cache of one shard slows the copy down, and progress names the shard', async () => {
  const text = 'x'.repeat(10_000)
  const things = pair.sourceClient.db('app').collection<{ _id: number; text: string }>('things')
  await things.insertMany(Array.from({ length: 2_000 }, (_, _id) => ({ _id, text })))
  await things.createIndex({ _id: 'hashed' })
  const slow = pair.destination.shards[1]
  await using shard = await MongoClient.connect(slow?.uri ?? '')

  const tandem = await pair.startTandem()
  // With this limit, the copy of 20 MB takes about 20 seconds.
  await limit(tandem, 1_048_576)
  const { clean } = await dirtyCache(shard)
  const shardCollection = { key: [{ _id: 'hashed' }] }
  const shardingEntries = [{ database: 'app', collection: 'things', shardCollection }]
  const sharding = { createSupportingIndexes: true, shardingEntries }
  expect(await start(tandem, { sharding })).toMatchObject({ status: 200 })
  const { limits } = await tandem.waitFor((progress) => progress.limits?.backedOff !== undefined, {
    timeoutSeconds: 60,
    what: 'backed off',
  })
  expect(limits?.backedOff?.reason).toBe(
    `too much of the cache of the shard ${slow?.name} of the destination is not written to disk yet`,
  )
  await clean()
  await limit(tandem, null)
  await commit(tandem)
  await pair.expectEqual({ 'app.things': JSON.stringify({ _id: 'hashed' }) })
})
