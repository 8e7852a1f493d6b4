import { setTimeout as sleep } from 'node:timers/promises'
import type { MongoClient } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { accepted, canCommit, commit } from '../support/commits.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection, start } from '../support/sharded-pair.ts'

/** The filter of a running sync to a sharded destination is replaced, and collections are renamed into or out of it. */

const documents = Array.from({ length: 200 }, (_, _id): Row => ({ _id, k: _id % 40 }))
const named = (...collections: string[]) => ({ includeNamespaces: [{ database: 'app', collections }] })
const selecting =
  (...names: string[]): Selects =>
  (database, name) =>
    database === 'app' && names.includes(name)

/** Writes to these collections of the source until `stop` is called. */
function writing(client: MongoClient, ...names: string[]): { stop: () => Promise<void> } & AsyncDisposable {
  const stopped = new AbortController()
  const written = (async () => {
    for (let at = 0; !stopped.signal.aborted; at++) {
      for (const name of names) {
        const collection = rowsOf(client, name)
        await collection.insertOne({ _id: `new ${at}`, k: at % 40 })
        await collection.updateOne({ _id: at % 200, k: (at % 200) % 40 }, { $inc: { n: 1 } })
        const gone = (at * 7) % 200
        await collection.deleteOne({ _id: gone, k: gone % 40 })
      }
      await sleep(5)
    }
  })()
  const stop = async () => {
    stopped.abort()
    await written
  }
  return { stop, [Symbol.asyncDispose]: stop }
}

describe('between sharded clusters', () => {
  const pair = new ShardedPair({}, {})

  async function seed(...names: string[]): Promise<void> {
    const { source, sourceClient } = pair
    await sourceClient.db('admin').command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
    for (const name of names) {
      await (await shardedCollection(source, sourceClient, name, { k: 1 }, [20])).insertMany(documents)
    }
    await rowsOf(sourceClient, 'plain').insertMany(documents)
  }

  test('under writes, a new filter converges the collections that it includes, and keeps or drops those that it excludes', async () => {
    const { source, destination, sourceClient, destinationClient } = pair
    const leftRows = () => rowsOf(destinationClient, 'left').find().sort({ _id: 1 }).toArray()
    await seed('kept', 'left', 'dropped', 'included', 'rekeyed')
    await rowsOf(sourceClient, 'left').createIndex({ k: 1, _id: 1 }, { unique: true, name: 'one' })
    // The destination already has collections that the filter includes later. One of them has another shard key.
    await (await shardedCollection(destination, destinationClient, 'included', { k: 1 }, [10])).insertMany([
      { _id: 1, k: 39, n: 'under another shard key' },
      { _id: 'extra', k: 1 },
    ])
    await (await shardedCollection(destination, destinationClient, 'rekeyed', { z: 1 })).insertOne({ _id: 1, z: 1 })
    const tandem = await pair.startSync(named('kept', 'left', 'dropped'))
    await canCommit(tandem)

    await using writer = writing(sourceClient, 'kept', 'left', 'included', 'rekeyed', 'plain')
    expect(await tandem.post('filter', named('kept', 'dropped', 'included', 'rekeyed', 'plain'))).toEqual(accepted)
    expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: false })
    await canCommit(tandem)
    const left = await leftRows()
    expect(await rowsOf(destinationClient, 'left').indexes()).toMatchObject([{}, {}, { name: 'one', unique: true }])
    const wanted = named('kept', 'included', 'rekeyed', 'plain')
    expect(await tandem.post('filter', { ...wanted, dropExcluded: true })).toEqual(accepted)
    await canCommit(tandem)
    await writer.stop()
    await source.moveChunk('app.included', { k: 1 }, 1)
    await commit(tandem)

    const shardKeys = Object.fromEntries(
      ['kept', 'left', 'included', 'rekeyed'].map((name) => [`app.${name}`, '{"k":1}']),
    )
    const selects = selecting('kept', 'included', 'rekeyed', 'plain', 'dropped')
    const expected = await compareBoth(pair.sourceUri, destination.uri, {
      selects: (...of) => of[1] !== 'dropped' && selects(...of),
      shardKeys,
    })
    expect(expected.differences).toEqual([])
    await pair.expectOwned()
    expect(await rowsOf(destinationClient, 'dropped').countDocuments()).toBe(0)
    expect(await leftRows()).toEqual(left)
    expect(await convergencesOf(destinationClient)).toBe(2)
  })

  test('a collection that is renamed out of the filter and back into it is converged', async () => {
    const { sourceClient, destinationClient } = pair
    await seed('round', 'wild')
    const selected = named('round', 'tame', 'plain')
    const tandem = await pair.startSync(selected)
    await canCommit(tandem)
    expect(await tandem.post('pause')).toEqual(accepted)
    const app = sourceClient.db('app')
    for (const name of ['round', 'plain']) {
      await app.renameCollection(name, 'aside')
      await rowsOf(sourceClient, 'aside').insertOne({ _id: 'while it is excluded', k: 39 })
      await rowsOf(sourceClient, 'aside').deleteOne({ _id: 21, k: 21 })
      await app.renameCollection('aside', name)
    }
    expect(await tandem.post('resume')).toEqual(accepted)
    await using writer = writing(sourceClient, 'round', 'plain')
    await app.renameCollection('wild', 'tame')
    await expect.poll(() => rowsOf(destinationClient, 'tame').countDocuments(), { timeout: 60_000 }).toBe(200)
    await canCommit(tandem)
    await writer.stop()
    await commit(tandem)
    await pair.expectEqual()
    expect(await rowsOf(destinationClient, 'round').findOne({ _id: 'while it is excluded' })).not.toBeNull()
  })
})

describe('from a replica set', () => {
  const pair = new ShardedPair('replicaSet', {})

  test('newly included collections are sharded as requested, and the result of convertToCapped is copied', async () => {
    const { sourceClient, destinationClient } = pair
    await rowsOf(sourceClient, 'log').insertMany(documents)
    for (const name of ['kept', 'included', 'plain']) {
      await rowsOf(sourceClient, name).createIndex({ k: 1 })
      await rowsOf(sourceClient, name).insertMany(documents)
    }
    const key = [{ k: 1 as const }]
    const shardingEntries = ['kept', 'included'].map((collection) => ({
      ...{ database: 'app', collection },
      shardCollection: { key },
    }))
    const sharding = { shardingEntries, createSupportingIndexes: false }
    const tandem = await pair.startTandem()
    expect(await start(tandem, { sharding, ...named('kept') })).toMatchObject(accepted)
    await canCommit(tandem)
    await using writer = writing(sourceClient, 'kept', 'included', 'plain')
    expect(await tandem.post('filter', {})).toEqual(accepted)
    await canCommit(tandem)
    await sourceClient.db('app').command({ convertToCapped: 'log', size: 100_000 })
    await expect.poll(() => convergencesOf(destinationClient), { timeout: 30_000 }).toBe(2)
    await canCommit(tandem)
    await writer.stop()
    await commit(tandem)
    await pair.expectEqual({ 'app.kept': '{"k":1}', 'app.included': '{"k":1}' })
    for (const count of await pair.spread('included')) expect(count).toBeGreaterThan(0)
  })
})
