import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { shardsNotReadable } from '../../src/checks/shards-not-readable.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { oplogBegin } from '../../src/mongo/oplog-window.ts'
import { ShardConnections, type ShardRead } from '../../src/mongo/shard-connections.ts'
import { failPoint } from '../support/fail-point.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { testCluster } from './clusters.ts'

/** tandem sends some commands to the shards directly. A shard joins the cluster, does not answer, and leaves the cluster. */

const appName = 'shard-connections'
let sharded: ShardedCluster
let third: ReplicaSet
let client: MongoClient
let cluster: Cluster
let connections: ShardConnections

beforeAll(async () => {
  ;[sharded, third] = await Promise.all([startShardedCluster({ shards: 2 }), startReplicaSet({ role: 'shardsvr' })])
  client = new MongoClient(sharded.uri)
  cluster = testCluster(sharded.uri, appName)
  await readFacts(cluster)
  connections = new ShardConnections(cluster)
})
afterAll(async () => {
  await connections?.close()
  await Promise.all([cluster?.close(), client?.close()])
  await Promise.all([sharded?.stop(), third?.stop()])
})

const ping = (read: ShardRead) => read('admin', { ping: 1 })
const answered = async (): Promise<string[]> =>
  (await connections.each(ping)).flatMap((answer) => ('result' in answer ? [answer.shard] : []))

/** Returns the number of connections that tandem has to this shard. */
async function connectedTo(uri: string): Promise<number> {
  await using direct = await MongoClient.connect(uri)
  const pipeline = [{ $currentOp: { allUsers: true, idleConnections: true } }, { $match: { appName } }]
  return (await direct.db('admin').aggregate(pipeline).toArray()).length
}

it('tandem asks all current shards of the cluster, and closes its connections to a former shard', async () => {
  const names = sharded.shards.map(({ name }) => name)
  expect(await answered()).toEqual(names)
  expect(await connectedTo(third.uri)).toBe(0)

  const admin = client.db('admin')
  await admin.command({ addShard: `${third.name}/${third.hosts.join(',')}`, name: third.name })
  expect(await answered()).toEqual([...names, third.name].sort())
  expect(await connectedTo(third.uri)).toBeGreaterThan(0)

  const removed = async () => (await admin.command({ removeShard: third.name }))['state']
  await expect.poll(removed, { timeout: 30_000 }).toBe('completed')
  expect(await answered()).toEqual(names)
  await expect.poll(() => connectedTo(third.uri)).toBe(0)
})

it('a shard that does not answer does not delay the answers of the others, and makes the oplog time unknown', async () => {
  expect(await oplogBegin(cluster)).toBe(Number.NEGATIVE_INFINITY)
  await using config = await MongoClient.connect(sharded.config.uri)
  const shards = config.db('config').collection<{ _id: string; host: string }>('shards')
  const [first, second] = sharded.shards.map(({ name }) => name) as [string, string]
  const { host = '' } = (await shards.findOne({ _id: first })) ?? {}
  // Nothing listens at port 1. The router keeps the address of the shard that it already knows.
  const setHost = (to: string) =>
    shards.updateOne({ _id: first }, { $set: { host: to } }, { writeConcern: { w: 'majority' } })
  await setHost(`${first}/127.0.0.1:1`)
  try {
    const answers = await connections.each(ping)
    expect(answers).toMatchObject([
      { shard: first, error: { message: expect.stringContaining('ECONNREFUSED') } },
      { shard: second, result: { ok: 1 } },
    ])
    const began = performance.now()
    expect(await answered()).toEqual([second])
    expect(performance.now() - began).toBeLessThan(4_000)
    await expect(oplogBegin(cluster)).rejects.toThrow('ECONNREFUSED')
    expect(shardsNotReadable('source', answers)).toMatchObject([
      {
        severity: 'warning',
        name: 'ShardNotReadable',
        message: expect.stringMatching(new RegExp(`on the source .* directly: ${first} \\(.*ECONNREFUSED`)),
      },
    ])
  } finally {
    await setHost(host)
  }
  expect(await answered()).toEqual(sharded.shards.map(({ name }) => name))
})

it('closing a Cluster closes its connections to the shards, also while a shard delays its answer', async () => {
  const own = testCluster(sharded.uri, appName)
  await readFacts(own)
  const [shard] = sharded.shards
  await using direct = await MongoClient.connect(shard?.uri ?? '')
  const delay = { failCommands: ['buildInfo'], appName, blockConnection: true, blockTimeMS: 9_000 }
  await using point = await failPoint(direct, 'failCommand', delay)
  const asking = new ShardConnections(own).each((read) => read('admin', { buildInfo: 1 }))
  await point.reached()
  const began = performance.now()
  await own.close()
  expect(await asking).toMatchObject([{ error: expect.any(Error) }, { shard: sharded.shards[1]?.name }])
  expect(performance.now() - began).toBeLessThan(8_000)
  expect(() => own.openShard('set/127.0.0.1:1')).toThrow('closed')
})
