import { Binary, Long, MongoClient, Timestamp } from 'mongodb'
import { expect, it, onTestFinished } from 'vitest'
import { type Cluster, toTimestamp } from '../../src/mongo/cluster.ts'
import { codeOf, isTransient } from '../../src/mongo/errors.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { stayAtOneRouter } from '../../src/mongo/same-server.ts'
import { failPoint } from '../support/fail-point.ts'
import { clusterOfFile, shardInTwo } from '../support/mongos/cluster-of-file.ts'
import { testCluster } from './clusters.ts'

/** The cluster has two routers. Neither of them knows the cursors, times and pending writes of the other. */

const context = clusterOfFile({ mongoses: 2 })

/** Connects to the cluster through both routers. */
function bothRouters(): Cluster {
  const cluster = testCluster(`${context.cluster.uri}?localThresholdMS=60000`)
  onTestFinished(() => cluster.close())
  return cluster
}

const addresses = (): string[] => context.cluster.mongoses.map(({ uri }) => new URL(uri).host)

/** Reads through the router with this address. */
async function readVia(cluster: Cluster, address: string, database: string, command: object): Promise<unknown> {
  const session = cluster.startSession()
  stayAtOneRouter(session, address)
  return await cluster.read(database, command, { session }).finally(() => session.endSession())
}

it('tandem reads a cursor to its end, and closes it, through the router that opened it', async () => {
  await shardInTwo(context, 'cursors.things')
  const documents = Array.from({ length: 100 }, (_, _id) => ({ _id, k: _id * 2 }))
  await context.client.db('cursors').collection<{ _id: number }>('things').insertMany(documents)
  const cluster = bothRouters()
  const read = { find: 'things', batchSize: 10 }
  const counts = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const cursor = await RawCursor.open(cluster, 'cursors', read)
      let count = 0
      for (let batch = await cursor.next(); batch; batch = await cursor.next({ batchSize: 10 })) {
        count += batch.documents.length
      }
      return count
    }),
  )
  expect(counts).toEqual(counts.map(() => 100))
  for (let at = 0; at < 10; at++) {
    const cursor = await RawCursor.open(cluster, 'cursors', read)
    await cursor.next()
    await cursor.close()
  }
  for (const shard of context.shardClients) {
    const idle = [{ $currentOp: { idleCursors: true, allUsers: true } }, { $match: { type: 'idleCursor' } }]
    await expect.poll(() => shard.db('admin').aggregate(idle).toArray(), { timeout: 10_000 }).toEqual([])
  }
})

it('a read after a time that one router reported succeeds at the other router, which has not observed that time', async () => {
  const database = context.client.db('times')
  const admin = context.client.db('admin')
  await admin.command({ enableSharding: 'times', primaryShard: context.cluster.shards[1]?.name })
  await database.collection<{ _id: number }>('things').insertOne({ _id: 1 })
  await admin.command({ enableSharding: 'ahead', primaryShard: context.cluster.shards[0]?.name })
  await context.client.db('ahead').collection<{ _id: number }>('things').insertOne({ _id: 1 })
  const cluster = bothRouters()
  const [first, second] = addresses() as [string, string]
  // Open a connection to each router. Each router keeps the cluster time of this moment.
  for (const address of [first, second]) await readVia(cluster, address, 'times', { find: 'things' })

  await using shard = await MongoClient.connect(context.cluster.shards[0]?.uri ?? '')
  const { operationTime } = (await shard.db('admin').command({ ping: 1 })) as { operationTime: Timestamp }
  const later = new Timestamp({ t: operationTime.getHighBitsUnsigned() + 600, i: 1 })
  const signature = { hash: new Binary(Buffer.alloc(20)), keyId: Long.ZERO }
  await shard.withSession(async (session) => {
    session.advanceClusterTime({ clusterTime: later, signature })
    await shard.db('admin').command({ appendOplogNote: 1, data: {} }, { session })
  })
  // The first router returns the time of the first shard.
  await readVia(cluster, first, 'ahead', { find: 'things' })
  expect(toTimestamp(cluster.latest).greaterThanOrEqual(later)).toBe(true)

  const readConcern = { level: 'majority', afterClusterTime: toTimestamp(cluster.latest) }
  await expect(readVia(cluster, second, 'times', { find: 'things', readConcern })).resolves.toMatchObject({ ok: 1 })
})

it('if a server refuses a read after a time in the future, the error is transient', async () => {
  const cluster = testCluster(context.cluster.uri)
  onTestFinished(() => cluster.close())
  const afterClusterTime = new Timestamp({ t: Math.floor(Date.now() / 1000) + 7 * 86_400, i: 1 })
  const refused = await cluster
    .read('times', { find: 'things', readConcern: { level: 'majority', afterClusterTime } })
    .catch((error: unknown) => error)
  expect(codeOf(refused)).toBe(72)
  expect(isTransient(refused)).toBe(true)
  const otherwise = await cluster.read('times', { create: 'capped', capped: true }).catch((error: unknown) => error)
  expect(codeOf(otherwise)).toBe(72)
  expect(isTransient(otherwise)).toBe(false)
})

it('tandem waits for a write that a router has not forwarded to a shard yet', async () => {
  await context.client.db('held').collection('things').insertOne({})
  const cluster = testCluster(`${context.cluster.uri}?localThresholdMS=60000`, 'held')
  onTestFinished(() => cluster.close())
  await cluster.read('admin', { hello: 1 })
  cluster.sharded = true
  const [held] = context.cluster.mongoses
  await using router = await MongoClient.connect(held?.uri ?? '')
  // The router of the stand-in calls an insert `clusterInsert`.
  const data = { failCommands: ['insert', 'clusterInsert'], blockConnection: true, blockTimeMS: 2_000 }
  await using _ = await failPoint(router, 'failCommand', data)
  const session = cluster.startSession()
  stayAtOneRouter(session, addresses()[0])
  const write = cluster.write('held', { insert: 'things', documents: [{}] }, { session, timeoutMS: 300 })
  expect(isTransient(await write.catch((error: unknown) => error))).toBe(true)
  expect(await context.client.db('held').collection('things').countDocuments()).toBe(2)
})
