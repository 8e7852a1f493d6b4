import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Finding } from '../../src/domain/finding.ts'
import { commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { shardedCollection, start } from '../support/sharded-pair.ts'
import { startTandem, type Tandem } from '../support/tandem-process.ts'

/** Reads the messages of the warnings ShardNotReadable. */
async function warningsOf(tandem: Tandem): Promise<string[]> {
  const { body } = await tandem.post('check', { source: 'cluster0', destination: 'cluster1' })
  const findings = body['findings'] as Finding[]
  expect(findings.filter(({ severity }) => severity === 'error')).toEqual([])
  return findings.flatMap(({ name, message }) => (name === 'ShardNotReadable' ? [message] : []))
}

let source: ShardedCluster
let destination: ShardedCluster

beforeAll(async () => {
  ;[source, destination] = await Promise.all([startShardedCluster({ auth: true }), startShardedCluster({ auth: true })])
})
afterAll(async () => {
  await Promise.all([source?.stop(), destination?.stop()])
})

test("with access control, mongosync's roles are enough and a user without them is refused; shards that do not know the user cause only a warning", async () => {
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
    expect(await warningsOf(tandem)).toEqual([
      expect.stringMatching(/on the source .*AuthenticationFailed.*estimatedOplogTimeRemaining/),
      expect.stringMatching(/on the destination .*AuthenticationFailed.*cache/),
    ])
    expect(await start(tandem)).toMatchObject({ status: 200, body: { success: true } })
    await commit(tandem)
    expect((await compareBoth(source.uri, destination.uri)).differences).toEqual([])
  } finally {
    await client.close()
  }
})
