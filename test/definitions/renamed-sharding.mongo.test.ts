import { type Binary, type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { copyBalancing } from '../../src/definitions/balancing.ts'
import { readDistribution, readDistributions, readPlacements } from '../../src/definitions/sharding.ts'
import { newEntry } from '../../src/domain/catalog.ts'
import { NamespaceRemap, noRemap } from '../../src/domain/namespace-remap.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readShards, readZoneRanges } from '../../src/mongo/config-database.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster } from '../mongo/clusters.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/** Tests what a sharded destination stores about databases that have other names there. */

let sharded: ShardedCluster
let client: MongoClient
let destination: Cluster
const names = new NamespaceRemap([
  { from: { database: 'app' }, to: { database: 'store' } },
  { from: { database: 'store' }, to: { database: 'depot' } },
])
beforeAll(async () => {
  sharded = await startShardedCluster()
  client = new MongoClient(sharded.uri)
  destination = testCluster(sharded.uri, 'renamed')
  await readFacts(destination)
  destination.names = names
})
afterAll(async () => {
  await Promise.all([destination?.close(), client?.close()])
  await sharded?.stop()
})

interface Stored extends Document {
  _id: string
  uuid: Binary
}
const stored = (_id: string) => client.db('config').collection<Stored>('collections').findOne({ _id })
const admin = (command: Document, withoutWriteConcern = false) =>
  destination.write('admin', command, { unfenced: true, withoutWriteConcern })

it('the callers of administrative commands, and of the reads of their results, use the names of databases on the source', async () => {
  const [first, second] = (await readShards(destination)).map(({ name }) => name)
  await admin({ enableSharding: 'app', primaryShard: first })
  await admin({ enableSharding: 'store', primaryShard: second })
  await admin({ shardCollection: 'app.things', key: { k: 1 } })
  await admin({ shardCollection: 'store.things', key: { _id: 'hashed' } })
  await client.db('store').collection('things').createIndex({ k: 1, x: 1 })
  await admin({ split: 'app.things', middle: { k: 5 } }, true)
  await admin({ moveChunk: 'app.things', find: { k: 6 }, to: second })
  await admin({ addShardToZone: first, zone: 'upper' }, true)
  await admin({ updateZoneKeyRange: 'app.things', min: { k: 1 }, max: { k: 2 }, zone: 'upper' }, true)
  await admin({ refineCollectionShardKey: 'app.things', key: { k: 1, x: 1 } })
  await admin({ renameCollection: 'store.things', to: 'store.renamed' })

  const uuid = fromUuid((await stored('store.things'))?.uuid as Binary)
  const refined = requestedShardKey([{ k: 1 }, { x: 1 }])
  expect(await readDistribution(destination, 'app.things', uuid)).toMatchObject({ name: 'app.things', key: refined })
  expect(await readDistribution(destination, 'store.things', uuid)).toBeUndefined()
  const namesOf = async (database?: string): Promise<string[]> =>
    (await readDistributions(destination, database))
      .map(({ name }) => name)
      .filter((name) => !name.startsWith('config.'))
      .sort()
  expect([await namesOf(), await namesOf('app'), await namesOf('store')]).toEqual([
    ['app.things', 'store.renamed'],
    ['app.things'],
    ['store.renamed'],
  ])
  const placed = (await readPlacements(destination)).map(({ database, primary }) => [database, primary])
  expect(Object.fromEntries(placed)).toMatchObject({ app: first, store: second })
  expect((await readPlacements(destination, 'app')).map(({ primary }) => primary)).toEqual([first])
  const zones = async (namespace?: string) =>
    (await readZoneRanges(destination, namespace)).map((range) => [range.namespace, range.zone])
  expect([await zones(), await zones('app.things'), await zones('store.things')]).toEqual([
    [['app.things', 'upper']],
    [['app.things', 'upper']],
    [],
  ])
  const chunks = await client
    .db('config')
    .collection('chunks')
    .find({ uuid: (await stored('store.things'))?.uuid })
    .toArray()
  // The balancer may have split the chunks at the zone's boundaries.
  expect(new Set(chunks.map(({ shard }) => shard))).toEqual(new Set([first, second]))
})

it("the balancer's settings are compared with those of the renamed collection, and written to that collection", async () => {
  const own = await stored('store.things')
  const entry = newEntry('app', { uuid: 'source', name: 'things' }, { options: [], indexes: [] }, 'copied')
  const destinationUUID = fromUuid(own?.uuid as Binary)
  const entries = [{ ...entry, destinationUUID, shardKey: requestedShardKey([{ k: 1 }]) }]
  // A second connection to the same cluster, on which a collection of that name has the settings of the source.
  await client.db('admin').command({ shardCollection: 'app.things', key: { k: 1 } })
  const source = destination.openWith(noRemap)
  const reports = { refused: vi.fn(), notUnique: vi.fn() }
  const settings = async () => {
    const { noBalance = false, permitMigrations = true } = (await stored('store.things')) as Stored
    return { noBalance, permitMigrations }
  }
  const onSource = async (left: boolean): Promise<void> => {
    const update = { $set: { noBalance: left } }
    await client.db('config').collection<Stored>('collections').updateOne({ _id: 'app.things' }, update)
    await client.db('admin').command({ setAllowMigrations: 'app.things', allowMigrations: !left })
  }
  try {
    for (const left of [true, false]) {
      await onSource(left)
      await copyBalancing(source, destination, entries, reports)
      expect(await settings()).toEqual({ noBalance: left, permitMigrations: !left })
    }
    const writes = vi.spyOn(destination, 'write')
    await copyBalancing(source, destination, entries, reports)
    expect(writes).not.toHaveBeenCalled()
    expect(reports.refused).not.toHaveBeenCalled()
  } finally {
    await source.close()
  }
})
