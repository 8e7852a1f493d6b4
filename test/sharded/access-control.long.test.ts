import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { shardedCollection, start } from '../support/sharded-pair.ts'
import { startTandem } from '../support/tandem-process.ts'

let source: ShardedCluster
let destination: ShardedCluster

beforeAll(async () => {
  ;[source, destination] = await Promise.all([startShardedCluster({ auth: true }), startShardedCluster({ auth: true })])
})
afterAll(async () => {
  await Promise.all([source?.stop(), destination?.stop()])
})

test("with access control, mongosync's roles are sufficient, and a user without them is refused", async () => {
  const client = new MongoClient(source.uri)
  try {
    const things = await shardedCollection(source, client, 'things', { k: 1 }, [20])
    await things.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i, k: i % 40 })))
    const cluster0 = await source.createUser('reader', 'secret', ['backup', 'clusterMonitor', 'readAnyDatabase'])
    const roles = ['clusterManager', 'clusterMonitor', 'readWriteAnyDatabase', 'restore']
    const cluster1 = await destination.createUser('writer', 'secret', roles)
    const feeble = await destination.createUser('feeble', 'secret', ['clusterMonitor', 'readAnyDatabase'])

    await using refused = await startTandem({ cluster0, cluster1: feeble })
    await expect.poll(() => refused.progress().catch(() => null), { timeout: 30_000 }).not.toBeNull()
    expect(await start(refused)).toMatchObject({ status: 422, body: { error: 'MissingPrivileges' } })
    await refused.stop()

    await using tandem = await startTandem({ cluster0, cluster1 })
    await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).not.toBeNull()
    expect(await start(tandem)).toEqual({ status: 200, body: { success: true } })
    await commit(tandem)
    expect((await compareBoth(source.uri, destination.uri)).differences).toEqual([])
  } finally {
    await client.close()
  }
})
