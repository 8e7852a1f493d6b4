import { type Binary, MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkDrainingShards } from '../../src/checks/draining-shards.ts'
import { DestinationSharding } from '../../src/definitions/destination-sharding.ts'
import { newEntry } from '../../src/domain/catalog.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/** A shard is draining after `removeShard`. All releases mark such a shard in `config.shards` in the same way. */

let sharded: ShardedCluster
let cluster: Cluster
let client: MongoClient
let draining: string

beforeAll(async () => {
  sharded = await startShardedCluster({ shards: 3 })
  cluster = testCluster(sharded.uri, 'draining-shard')
  await readFacts(cluster)
  client = new MongoClient(sharded.uri)
  draining = sharded.shards[0]?.name as string
  await using config = await MongoClient.connect(sharded.config.uri)
  await config
    .db('config')
    .collection<{ _id: string }>('shards')
    .updateOne({ _id: draining }, { $set: { draining: true } }, { writeConcern: { w: 'majority' } })
})
afterAll(async () => {
  await Promise.all([cluster?.close(), client?.close()])
  await sharded?.stop()
})

it('causes a warning of check, as a shard of the source and of the destination', async () => {
  const found = await checkDrainingShards({ source: cluster, destination: cluster } as CheckedClusters)
  expect(found).toMatchObject([
    { severity: 'warning', name: 'ShardDraining', message: expect.stringContaining(`${draining} of the source`) },
    { severity: 'warning', name: 'ShardDraining', message: expect.stringContaining(`${draining} of the destination`) },
  ])
})

it('does not become a primary shard, and gets no chunk of a collection that is distributed before the copy', async () => {
  const sharding = new DestinationSharding(cluster, cluster, testContext())
  const names = ['app', 'one', 'two', 'three']
  for (const name of names) await sharding.assignPrimary(name)
  const config = client.db('config')
  const placed = await config.collection<{ _id: string; primary: string }>('databases').find().toArray()
  const primaries = new Map(placed.map(({ _id, primary }) => [_id, primary]))
  for (const name of names) expect(primaries.get(name)).not.toBe(draining)

  const app = client.db('app')
  await app.collection('wanted').insertMany(Array.from({ length: 200 }, (_, k) => ({ k })))
  const uuidOf = async (name: string): Promise<string> => {
    const [listed] = await app.listCollections({ name }).toArray()
    return fromUuid((listed as unknown as { info: { uuid: Binary } }).info.uuid)
  }
  for (const [name, direction] of [
    ['ranged', 1],
    ['hashed', 'hashed'],
  ] as const) {
    await app.createCollection(name)
    const entry = newEntry('app', { uuid: await uuidOf('wanted'), name }, { options: [], indexes: [] }, 'copied')
    const shardKey = requestedShardKey([{ k: direction }])
    await sharding.distribute(
      Object.assign(entry, { sourceName: 'wanted', destinationUUID: await uuidOf(name), shardKey }),
    )
    const { uuid } = (await config.collection<{ _id: string }>('collections').findOne({ _id: `app.${name}` })) as never
    const chunks = await config.collection('chunks').find({ uuid }).toArray()
    const holders = new Set(chunks.map(({ shard }) => shard))
    expect([...holders].sort()).toEqual(sharded.shards.slice(1).map(({ name }) => name))
  }
})
