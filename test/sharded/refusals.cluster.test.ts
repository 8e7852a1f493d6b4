import { describe, expect, test } from 'vitest'
import { commit } from '../support/commits.ts'
import { rowsOf } from '../support/rows.ts'
import { ShardedPair, start } from '../support/sharded-pair.ts'
import { startTandem } from '../support/tandem-process.ts'

const sharding = (key: Record<string, 1 | -1 | 'hashed'>[], createSupportingIndexes = false) => ({
  sharding: {
    createSupportingIndexes,
    shardingEntries: [{ database: 'app', collection: 'things', shardCollection: { key } }],
  },
})
const refused = (error: string, description: string | RegExp, status = 422) => ({
  status,
  body: {
    success: false,
    error,
    errorDescription:
      typeof description === 'string' ? expect.stringContaining(description) : expect.stringMatching(description),
  },
})

describe('a replica set to a sharded cluster', () => {
  const pair = new ShardedPair('replicaSet', {})

  test('is refused with options that do not fit it, and with a key that the indexes do not support', async () => {
    const things = rowsOf(pair.sourceClient, 'things')
    await things.createIndexes([
      { key: { s: 1 }, sparse: true },
      { key: { p: 1 }, partialFilterExpression: { p: { $gt: 1 } } },
      { key: { c: 1 }, collation: { locale: 'en', strength: 2 } },
      { key: { m: 1 } },
      { key: { a: 1, b: 1 } },
    ])
    await things.insertOne({ _id: 1, m: [1, 2] })
    const tandem = await pair.startTandem()
    const refusals: [
      what: string,
      options: Record<string, unknown>,
      error: string,
      description: string,
      status?: number,
    ][] = [
      ['without sharding', {}, 'ShardingRequired', 'sharding'],
      ['reversible', { ...sharding([{ _id: 1 }]), reversible: true }, 'ReversibleNotSupported', 'reversible'],
      ['with a descending key', sharding([{ k: -1 }]), 'InvalidRequest', 'shardingEntries[0]', 400],
      ['with two hashed fields', sharding([{ k: 'hashed' }, { u: 'hashed' }]), 'InvalidRequest', 'hashed', 400],
      ['with no index for the key', sharding([{ k: 1 }]), 'UnsupportedCollection', 'no index'],
      ['with a sparse index for the key', sharding([{ s: 1 }]), 'UnsupportedCollection', 'no index'],
      ['with a partial index for the key', sharding([{ p: 1 }]), 'UnsupportedCollection', 'no index'],
      ['with a collated index for the key', sharding([{ c: 1 }]), 'UnsupportedCollection', 'no index'],
      ['with a multikey index for the key', sharding([{ m: 1 }]), 'UnsupportedCollection', 'multikey'],
      ['with fields in another order', sharding([{ b: 1 }, { a: 1 }]), 'UnsupportedCollection', 'no index'],
    ]
    for (const [what, options, error, description, status] of refusals) {
      expect([what, await start(tandem, options)]).toMatchObject([what, refused(error, description, status)])
      expect((await tandem.progress()).state).toBe('IDLE')
    }
  })

  test('is refused with the name of a unique index that does not begin with the shard key', async () => {
    await rowsOf(pair.sourceClient, 'things').createIndexes([{ key: { k: 1 } }, { key: { u: 1 }, unique: true }])
    const tandem = await pair.startTandem()
    expect(await start(tandem, sharding([{ k: 1 }]))).toMatchObject(refused('UnsupportedCollection', 'u_1'))
  })

  test('is refused for views and capped collections', async () => {
    await pair.sourceClient.db('app').createCollection('things', { capped: true, size: 4096 })
    const tandem = await pair.startTandem()
    expect(await start(tandem, sharding([{ _id: 1 }]))).toMatchObject(refused('UnsupportedCollection', 'capped'))
    await rowsOf(pair.sourceClient, 'things').drop()
    await pair.sourceClient.db('app').createCollection('base')
    await pair.sourceClient.db('app').createCollection('things', { viewOn: 'base', pipeline: [] })
    expect(await start(tandem, sharding([{ _id: 1 }]))).toMatchObject(refused('UnsupportedCollection', 'view'))
  })

  test('is refused for a collection with a collation and no index except _id', async () => {
    await pair.sourceClient.db('app').createCollection('things', { collation: { locale: 'en', strength: 2 } })
    const tandem = await pair.startTandem()
    expect(await start(tandem, sharding([{ _id: 1 }], true))).toMatchObject(
      refused('UnsupportedCollection', 'no index'),
    )
  })

  test('is accepted with createSupportingIndexes, and the destination has a supporting index of its own', async () => {
    await rowsOf(pair.sourceClient, 'things').insertMany(Array.from({ length: 100 }, (_, i) => ({ _id: i, k: i })))
    const tandem = await pair.startSync(sharding([{ k: 1 }], true))
    await commit(tandem)
    const indexes = await rowsOf(pair.destinationClient, 'things').indexes()
    expect(indexes.map(({ name }) => name)).toEqual(['_id_', 'k_1'])
    for (const documents of await pair.spread('things')) expect(documents).toBeGreaterThan(0)
  })
})

describe('sharded clusters', () => {
  const pair = new ShardedPair({}, { shards: 3 })

  test('are refused with sharding, and with reversible for unequal shard counts', async () => {
    const tandem = await pair.startTandem()
    expect(await start(tandem, sharding([{ _id: 1 }]))).toMatchObject(refused('ShardingNotAllowed', 'sharding'))
    const reversible = { reversible: true, enableUserWriteBlocking: 'sourceAndDestination' }
    expect(await start(tandem, reversible)).toMatchObject(refused('ReversibleNotSupported', /2.*3/))
  })

  test('are refused when both are the same cluster', async () => {
    await using tandem = await startTandem({ cluster0: pair.sourceUri, cluster1: pair.sourceUri })
    await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).not.toBeNull()
    expect(await start(tandem)).toMatchObject(refused('UnsupportedTopology', 'same cluster'))
  })
})
