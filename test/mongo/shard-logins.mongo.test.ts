import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { DestinationPressure, readShardStatus } from '../../src/mongo/destination-pressure.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { oplogBegin, shardOplogWindows } from '../../src/mongo/oplog-window.ts'
import { ShardConnections } from '../../src/mongo/shard-connections.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { testCluster } from './clusters.ts'

/** Tests how often tandem tries to log in to a shard that does not know its user, because each attempt adds a line to the shard's log. */

let sharded: ShardedCluster
let cluster: Cluster
let shard: MongoClient

beforeAll(async () => {
  sharded = await startShardedCluster({ shards: 1, auth: true })
  cluster = testCluster(await sharded.createUser('tandem', 'secret', ['clusterMonitor', 'readAnyDatabase']), 'logins')
  await readFacts(cluster)
  shard = await MongoClient.connect(sharded.shards[0]?.uri ?? '')
})
afterAll(async () => {
  await Promise.all([cluster?.close(), shard?.close()])
  await sharded?.stop()
})

/** Returns the number of logins that the shard has refused to any user. */
async function refusedLogins(): Promise<number> {
  const { security } = await shard.db('admin').command({ serverStatus: 1 })
  const mechanisms: { authenticate: { received: number; successful: number } }[] = Object.values(
    security.authentication.mechanisms,
  )
  return mechanisms.reduce((sum, { authenticate }) => sum + authenticate.received - authenticate.successful, 0)
}

/** Runs `work`, and returns how many logins the shard has refused meanwhile. */
async function refusedDuring(work: () => Promise<unknown>): Promise<number> {
  const before = await refusedLogins()
  await work().catch((error) => expect(error).toMatchObject({ codeName: 'AuthenticationFailed' }))
  return (await refusedLogins()) - before
}

it('tandem asks a shard that does not know its user again after half an hour, or when check runs', async () => {
  const pressure = new DestinationPressure(cluster)
  onTestFinished(() => pressure.close())
  expect(await refusedDuring(() => oplogBegin(cluster))).toBeGreaterThan(0)
  await expect(oplogBegin(cluster)).rejects.toMatchObject({ codeName: 'AuthenticationFailed' })
  expect(await refusedDuring(() => oplogBegin(cluster))).toBe(0)
  expect(await refusedDuring(() => pressure.read())).toBe(0)
  expect(await pressure.read()).toBeNull()

  for (const asked of [shardOplogWindows, readShardStatus]) {
    expect(await refusedDuring(() => asked(cluster))).toBeGreaterThan(0)
  }
  expect(await check()).toMatchObject([{ error: { codeName: 'AuthenticationFailed' } }])

  const now = performance.now()
  const later = vi.spyOn(performance, 'now').mockImplementation(() => now + 31 * 60_000)
  onTestFinished(() => later.mockRestore())
  expect(await refusedDuring(() => oplogBegin(cluster))).toBeGreaterThan(0)
  expect(await refusedDuring(() => oplogBegin(cluster))).toBe(0)
})

it('tandem waits for the same time after a shard has refused its user if the shard could not be reached before that', async () => {
  let now = performance.now() + 120 * 60_000
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now)
  const connections = new ShardConnections(cluster)
  onTestFinished(async () => {
    clock.mockRestore()
    await connections.close()
  })
  const unreachable = async (): Promise<never> => Promise.reject(new Error('no route to the shard'))
  expect(await connections.each(unreachable)).toMatchObject([{ error: { message: 'no route to the shard' } }])
  const ask = async () => {
    now += 31_000
    return await refusedDuring(() => connections.each((read) => read('admin', { serverStatus: 1 })))
  }
  expect(await ask()).toBeGreaterThan(0)
  expect(await ask()).toBe(0)
})

it('once check has logged in to the shard, tandem asks the shard as usual', async () => {
  await expect(oplogBegin(cluster)).rejects.toMatchObject({ codeName: 'AuthenticationFailed' })
  const roles = ['clusterMonitor', { role: 'read', db: 'local' }]
  await shard.db('admin').command({ createUser: 'tandem', pwd: 'secret', roles })
  await expect(oplogBegin(cluster)).rejects.toMatchObject({ codeName: 'AuthenticationFailed' })
  expect(await check()).toMatchObject([{ result: expect.anything() }])
  await oplogBegin(cluster)
})

const check = () => readShardStatus(cluster)
