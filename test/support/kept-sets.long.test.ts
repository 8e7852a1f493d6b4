import { MongoClient } from 'mongodb'
import { afterEach, expect, it } from 'vitest'
import { failPoint } from './fail-point.ts'
import { borrowReplicaSet, keepSets, keptPids, stopSets } from './kept-sets.ts'
import type { ReplicaSet } from './replica-set.ts'

/** Tests of the replica sets that test files use one after the other. Other files may have left such sets. */

// One test calls `stopSets`, so keeping begins again after each test. The last set ends with the worker.
afterEach(keepSets)

const databases = async (client: MongoClient): Promise<string[]> => {
  const { databases: listed } = await client.db('admin').admin().listDatabases({ nameOnly: true })
  return listed.map(({ name }) => name)
}

it('a set that is given back is lent again without data, users, cursors, write blocks and fail points', async () => {
  const first = await borrowReplicaSet()
  const pid = await first.primaryPid()
  {
    await using client = new MongoClient(first.uri)
    await client.db('app').collection('things').insertOne({})
    await first.createUser('user', 'secret', ['readAnyDatabase'])
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: true })
    await client.db('app').command({ aggregate: 1, pipeline: [{ $changeStream: {} }], cursor: {} })
    await failPoint(client, 'failCommand', { failCommands: ['insert'], errorCode: 91 })
    await failPoint(client, 'hangDuringBatchInsert', { nss: 'app.things' })
  }
  await first.stop()
  expect(keptPids()).toContain(pid)

  await using second = await borrowReplicaSet()
  expect(await second.primaryPid()).toBe(pid)
  expect(keptPids()).not.toContain(pid)
  await using client = new MongoClient(second.uri)
  expect(await databases(client)).not.toContain('app')
  const cursors = [{ $currentOp: { allUsers: true, idleCursors: true } }, { $match: { type: 'idleCursor' } }]
  expect(await client.db('admin').aggregate(cursors).toArray()).toEqual([])
  expect(await client.db('admin').command({ usersInfo: 1 })).toMatchObject({ users: [] })
  await client.db('app').collection('things').insertOne({})
})

it.each<[what: string, leave: (client: MongoClient, set: ReplicaSet) => Promise<unknown>]>([
  [
    'of which a parameter was changed',
    (client) => client.db('admin').command({ setParameter: 1, ttlMonitorEnabled: false }),
  ],
  [
    'of which a cluster parameter was changed',
    (client) =>
      client.db('admin').command({
        setClusterParameter: { changeStreamOptions: { preAndPostImages: { expireAfterSeconds: 100 } } },
      }),
  ],
  [
    'of which the default write concern was changed',
    (client) => client.db('admin').command({ setDefaultRWConcern: 1, defaultWriteConcern: { w: 1 } }),
  ],
  ['that stepped down', (_client, set) => set.stepDown()],
  ['that was restarted', (_client, set) => set.restart()],
  ['after a failed test', async () => stopSets()],
])('a set %s is stopped', async (_what, leave) => {
  const set = await borrowReplicaSet()
  {
    await using client = new MongoClient(set.uri)
    await leave(client, set)
  }
  const pid = await set.primaryPid()
  await set.stop()
  expect(keptPids()).not.toContain(pid)
  await expect(MongoClient.connect(set.uri, { serverSelectionTimeoutMS: 500 })).rejects.toThrow()
})

it('a set that is given back while a client is connected to it is stopped', async () => {
  const set = await borrowReplicaSet()
  const pid = await set.primaryPid()
  const client = await MongoClient.connect(set.uri)
  await set.stop()
  expect(keptPids()).not.toContain(pid)
  await client.close()
})
