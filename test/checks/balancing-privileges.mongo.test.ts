import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { maySetNoBalance } from '../../src/checks/balancing.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { testCluster } from '../mongo/clusters.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'

/**
 * Tests which users may write `noBalance` into `config.collections`. The tests use a replica set, which checks this privilege as a
 * sharded cluster does. The stand-in for mongos does not check the privileges of a write.
 */

let set: ReplicaSet

beforeAll(async () => {
  set = await startReplicaSet({ auth: true })
})
afterAll(() => set?.stop())

const role = (name: string, resource: Document) => ({
  role: name,
  privileges: [{ resource, actions: ['find', 'update'] }],
})

it.each<[string, (string | Document)[], boolean]>([
  ["mongosync's roles", ['clusterManager', 'clusterMonitor', 'readWriteAnyDatabase', 'restore'], true],
  ["mongosync's roles without clusterManager", ['clusterMonitor', 'readWriteAnyDatabase', 'restore'], false],
  ['update on all databases', [role('anywhere', { db: '', collection: '' })], false],
  ['update on config.settings', [role('settings', { db: 'config', collection: 'settings' })], false],
  ['update on config.collections', [role('one', { db: 'config', collection: 'collections' })], true],
  ['update on all collections of this name', [role('named', { db: '', collection: 'collections' })], true],
  ['update on config', [role('config', { db: 'config', collection: '' })], true],
  ['update on everything', [role('everything', { anyResource: true })], true],
  ['root', ['root'], true],
])(
  'for a user with %s, the server and check agree on whether the user has the privilege',
  async (name, roles, isAllowed) => {
    const uri = await set.createUser(`user with ${name}`, 'secret', roles)
    const cluster = testCluster(uri)
    onTestFinished(() => cluster.close())
    await using client = await MongoClient.connect(uri)
    const updates = [{ q: { _id: 'app.c' }, u: { $set: { noBalance: true } } }]
    const answer = await client
      .db('config')
      .command({ update: 'collections', updates })
      .then(
        () => 'updated',
        ({ codeName }) => codeName,
      )
    expect(answer).toBe(isAllowed ? 'updated' : 'Unauthorized')
    expect(maySetNoBalance(await readFacts(cluster))).toBe(isAllowed)
  },
)
