import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it, test } from 'vitest'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { DestinationPressure, describePressure, readShardStatus } from '../../src/mongo/destination-pressure.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { dirtyCache, withoutCheckpoints } from '../support/dirty-cache.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { testCluster } from './clusters.ts'

/** The load of a sharded destination is that of its shards, of which a router shows nothing. */

let sharded: ShardedCluster
let cluster: Cluster
let pressure: DestinationPressure

beforeAll(async () => {
  sharded = await startShardedCluster({ shards: 2, extraArgs: withoutCheckpoints })
  cluster = testCluster(sharded.uri, 'destination-pressure')
  await readFacts(cluster)
  pressure = new DestinationPressure(cluster)
})
afterAll(async () => {
  await pressure?.close()
  await cluster?.close()
  await sharded?.stop()
})

it('one shard whose cache is dirty makes the destination overloaded, until it is written to disk', async () => {
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
