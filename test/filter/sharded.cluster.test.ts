import { expect, test } from 'vitest'
import { compareClusters, type Selects } from '../support/compare.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { commit, rows, ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

const pair = new ShardedPair({}, {})

const selects: Selects = (database, name) => database === 'app' && ['one', 'plain'].includes(name)

test('4.5: between sharded clusters, collections that are left out do not change on the destination', async () => {
  const { sourceClient, destinationClient } = pair
  const numbered = (from: number) => Array.from({ length: 40 }, (_, at) => ({ _id: from + at, k: at }))
  for (const name of ['one', 'left']) {
    const collection = await shardedCollection(pair.source, sourceClient, name, { k: 1 }, [20])
    await collection.insertMany(numbered(0))
  }
  await rows(sourceClient, 'plain').insertMany(numbered(0))
  // The destination already has the database, and in it a collection with a name that is left out.
  await shardedCollection(pair.destination, destinationClient, 'left', { other: 1 })
  await rows(destinationClient, 'left').insertOne({ _id: 1, other: 2 })
  const before = await fingerprints(pair.destination.uri, () => true)

  const includeNamespaces = [{ databaseRegex: { pattern: '^AP', options: 'i' } }]
  const excludeNamespaces = [{ database: 'app', collectionsRegex: { pattern: '^l' } }, { database: 'other' }]
  const tandem = await pair.startSync({ includeNamespaces, excludeNamespaces })
  for (const name of ['one', 'left', 'plain']) await rows(sourceClient, name).insertMany(numbered(100))
  await rows(sourceClient, 'one').deleteMany({ k: { $lt: 5 } })
  await rows(sourceClient, 'left').createIndex({ k: 1, u: 1 })
  await sourceClient.db('other').collection('things').insertOne({})
  await commit(tandem)

  const { differences, documents } = await compareClusters(pair.sourceUri, pair.destination.uri, {
    selects,
    shardKeys: { 'app.one': '{"k":1}', 'app.left': '{"other":1}' },
  })
  expect(differences).toEqual([])
  expect(documents).toBe(150)
  expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
})
