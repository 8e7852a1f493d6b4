import { type Document, MongoClient } from 'mongodb'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type ShardedClusters, startShardedClusters } from '../faults/clusters.ts'
import { migrateSharded } from '../faults/sharded-instances.ts'
import { commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import type { ShardedCluster } from '../support/sharded-cluster.ts'
import { start } from '../support/sharded-pair.ts'
import { ShardedWorkload } from '../support/sharded-workload.ts'
import { startTandem } from '../support/tandem-process.ts'

/**
 * Two routers for each cluster in one connection string. A router knows only the cursors that were opened through it,
 * and has a clock and a routing table of its own.
 */

let clusters: ShardedClusters
let source: ShardedCluster
let destination: ShardedCluster

/** The driver uses every server whose latency is within this threshold of the fastest one, so it uses both routers. */
const usesBoth = (cluster: ShardedCluster): ShardedCluster => ({
  ...cluster,
  uri: `${cluster.uri}?localThresholdMS=60000`,
})

beforeAll(async () => {
  clusters = await startShardedClusters({ mongoses: 2 }, { mongoses: 2 })
  ;[source, destination] = [usesBoth(clusters.source), usesBoth(clusters.destination)]
})
afterAll(() => clusters?.[Symbol.asyncDispose]())

afterEach(async () => {
  await expect.poll(openCursors, { timeout: 20_000, interval: 250 }).toEqual([])
  expect([source, destination].flatMap(({ mongoses }) => mongoses.flatMap(notFound))).toEqual([])
})

/** Returns the idle cursors on the shards. */
async function openCursors(): Promise<Document[]> {
  const found: Document[] = []
  for (const shard of [source, destination].flatMap(({ shards }) => shards)) {
    await using client = await MongoClient.connect(shard.uri)
    const pipeline = [{ $currentOp: { idleCursors: true, allUsers: true } }, { $match: { type: 'idleCursor' } }]
    found.push(...(await client.db('admin').aggregate(pipeline).toArray()))
  }
  return found.map(({ host, ns, cursor }) => ({ host, ns, command: cursor?.originatingCommand }))
}

const notFound = ({ log }: { log(): string }): string[] =>
  log()
    .split('\n')
    .filter((line) => line.includes('CursorNotFound'))

test('one instance copies, follows and commits through two routers', async () => {
  for (const { uri } of [source, destination]) {
    await using client = await MongoClient.connect(uri)
    await emptyCluster(client)
  }
  const workload = new ShardedWorkload(source.uri, source, 'routers')
  try {
    await workload.create()
    await using tandem = await startTandem({ cluster0: source.uri, cluster1: destination.uri })
    await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).not.toBeNull()
    expect(await start(tandem)).toEqual({ status: 200, body: { success: true } })
    await workload.run(100)
    await commit(tandem)
    expect((await compareBoth(source.uri, destination.uri)).differences).toEqual([])
  } finally {
    await workload.close()
  }
})

test('two instances copy, follow and commit through two routers', async () => {
  const { problems, copied, total } = await migrateSharded({ ...clusters, source, destination }, 201, 2, 80)
  expect(problems).toEqual([])
  expect(copied.reduce((sum, bytes) => sum + bytes, 0)).toBe(total)
})
