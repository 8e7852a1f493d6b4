import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it, onTestFinished, test, vi } from 'vitest'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { DestinationPressure, describePressure, readShardStatus } from '../../src/mongo/destination-pressure.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { dirtyCache, withoutCheckpoints } from '../support/dirty-cache.ts'
import { failPoint } from '../support/fail-point.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** The load of a sharded destination is the load of its shards. tandem asks the shards, because a router does not report it. */

const appName = 'destination-pressure'
const one = oneSet()
let sharded: ShardedCluster
let cluster: Cluster
let pressure: DestinationPressure

beforeAll(async () => {
  sharded = await startShardedCluster({ shards: 2, extraArgs: withoutCheckpoints })
  cluster = testCluster(sharded.uri, appName)
  await readFacts(cluster)
  pressure = new DestinationPressure(cluster)
})
afterAll(async () => {
  await pressure?.close()
  await cluster?.close()
  await sharded?.stop()
})

it('the destination is overloaded while too much of the cache of one shard is not written to disk', async () => {
  expect(await pressure.read()).toBeNull()
  const slow = sharded.shards[1]
  await using direct = await MongoClient.connect(slow?.uri ?? '')
  const { clean } = await dirtyCache(direct)
  expect(await pressure.read()).toBe(
    `too much of the cache of the shard ${slow?.name} of the destination is not written to disk yet`,
  )
  await clean()
  await expect.poll(() => pressure.read(), { timeout: 20_000 }).toBeNull()
})

/** A short limit, so that the tests do not wait for long. */
const answerMS = 3_000

/**
 * Delays the answers to serverStatus for longer than tandem waits for them. The server ends a fail point only after the
 * commands that it delays.
 */
const delayStatus = (client: MongoClient, of: string) =>
  failPoint(client, 'failCommand', {
    failCommands: ['serverStatus'],
    appName: of,
    blockConnection: true,
    blockTimeMS: answerMS + 1_500,
  })

it('a shard that can be reached and does not answer counts as overloaded until it answers', async () => {
  const own = new DestinationPressure(cluster, answerMS)
  onTestFinished(() => own.close())
  expect(await own.read()).toBeNull()
  const [, silent] = sharded.shards
  await using direct = await MongoClient.connect(silent?.uri ?? '')
  await using point = await delayStatus(direct, appName)
  const overloaded = `the shard ${silent?.name} of the destination does not answer serverStatus within 3 seconds`
  expect(await own.read()).toBe(overloaded)
  expect(await own.read()).toBe(overloaded)
  await point.release()
  expect(await own.read()).toBeNull()
})

it('a replica set that can be reached and does not answer counts as overloaded until it answers', async () => {
  const own = new DestinationPressure(one.cluster, answerMS)
  expect(await own.read()).toBeNull()
  await using point = await delayStatus(one.client, 'tandem-test')
  expect(await own.read()).toBe('the destination does not answer serverStatus within 3 seconds')
  await point.release()
  expect(await own.read()).toBeNull()
})

it('if a shard cannot be reached for a short time, its last known load stays valid', async () => {
  const own = new DestinationPressure(cluster)
  onTestFinished(() => own.close())
  await using config = await MongoClient.connect(sharded.config.uri)
  const shards = config.db('config').collection<{ _id: string; host: string }>('shards')
  const _id = sharded.shards[0]?.name ?? ''
  const { host = '' } = (await shards.findOne({ _id })) ?? {}
  // Nothing listens at port 1. The router keeps the address of the shard that it already knows.
  const setHost = (to: string) => shards.updateOne({ _id }, { $set: { host: to } }, { writeConcern: { w: 'majority' } })
  try {
    await setHost(`${_id}/127.0.0.1:1`)
    // This instance has never had an answer of the shard, so it does not know its load.
    expect(await own.read()).toBeNull()
    await setHost(host)
    expect(await own.read()).toBeNull()
    await setHost(`${_id}/127.0.0.1:1`)
    expect(await own.read()).toBeUndefined()
    const now = performance.now()
    const later = vi.spyOn(performance, 'now').mockImplementation(() => now + 61_000)
    onTestFinished(() => later.mockRestore())
    expect(await own.read()).toBeNull()
  } finally {
    await setHost(host)
  }
})

it('the replies of shards contain the figures of their caches', async () => {
  const answers = await readShardStatus(cluster)
  expect(answers).toHaveLength(2)
  for (const answer of answers) {
    expect(answer).toMatchObject({
      result: {
        wiredTiger: {
          cache: {
            'maximum bytes configured': expect.any(Number),
            'tracked dirty bytes in the cache': expect.any(Number),
            'bytes currently in the cache': expect.any(Number),
          },
        },
      },
    })
  }
})

const cacheOf = (dirty: number, used: number) => ({
  wiredTiger: {
    cache: {
      'maximum bytes configured': 100,
      'tracked dirty bytes in the cache': dirty,
      'bytes currently in the cache': used,
    },
  },
})

test.each([
  [cacheOf(19, 95), null],
  [cacheOf(20, 50), 'too much of the cache of X is not written to disk yet'],
  [cacheOf(0, 96), 'the cache of X is full'],
  [{ flowControl: { isLagged: true } }, 'flow control of X holds writes back: its secondaries lag'],
  [{ flowControl: { isLagged: false } }, null],
])('serverStatus %j means: %s', (status, expected) => {
  expect(describePressure(status, 'X')).toBe(expected)
})
