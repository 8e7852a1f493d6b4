import { MongoClient } from 'mongodb'
import { expect, it, onTestFinished } from 'vitest'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { codeOf, isTransient } from '../../src/mongo/errors.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** Tests how long the server executes a write for which no client waits, and how long a successor waits for such a write. */

const one = oneSet()
const secured = oneSet({ auth: true })
/** The server ends a write within this time. A successor without the privilege to list operations waits a little longer. */
const limitMS = 25_000

it('the server does not execute a definition or a metadata write after its time limit', async () => {
  const cluster = testCluster(one.set.uri, 'late')
  onTestFinished(() => cluster.close())
  await one.client.db('app').createCollection('old')
  const admin = one.client.db('admin')
  await admin.command({ fsync: 1, lock: true })
  const began = performance.now()
  let isLocked = true
  const unlock = async (): Promise<void> => {
    if (isLocked) await admin.command({ fsyncUnlock: 1 })
    isLocked = false
  }
  onTestFinished(unlock)
  const definitions = new DestinationDefinitions(cluster, 'never')
  const wanted = { options: [], indexes: [] }
  const entry = { database: 'app', name: 'late', uuid: 'u', wanted, refusedIndexes: [] } as unknown as CatalogEntry
  const view = { type: 'view', name: 'view', uuid: '', options: [] }
  const outcomes = Promise.allSettled([
    definitions.create('app', [entry]),
    definitions.followViews('app', [view as never]),
    cluster.write('app', { drop: 'old' }),
    cluster.write(metadataDatabase, { update: 'sync', updates: [{ q: { _id: 'late' }, u: { a: 1 }, upsert: true }] }),
  ])
  const failed = await outcomes
  expect(performance.now() - began).toBeLessThan(limitMS + 10_000)
  for (const outcome of failed) {
    const { reason } = outcome as PromiseRejectedResult
    expect(codeOf(reason)).toBe(50)
    expect(isTransient(reason)).toBe(true)
  }
  await cluster.idle({ 'command.comment': { $regex: '^late:' } })
  await unlock()
  await one.client.db('app').collection('probe').insertOne({})
  const names = (await one.client.db('app').listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name)
  expect(names.sort()).toEqual(['old', 'probe'])
  expect(await one.client.db(metadataDatabase).collection('sync').countDocuments()).toBe(0)
})

it('a successor waits for a write of another user; without the privilege to list it, it waits for the time limit', async () => {
  const admin = secured.client.db('admin')
  const privileges = [{ resource: { cluster: true }, actions: ['inprog'] }]
  await admin.command({ createRole: 'lister', privileges, roles: [] })
  await admin.command({ createUser: 'lister', pwd: 'p', roles: ['lister'] })
  await admin.command({ createUser: 'unprivileged', pwd: 'p', roles: [{ role: 'readWrite', db: 'app' }] })
  const as = (user: string): Cluster => {
    const cluster = testCluster(withUser(secured.set.uri, user), user)
    onTestFinished(() => cluster.close())
    return cluster
  }
  await using sleeper = await MongoClient.connect(secured.set.uri)
  const comment = 'predecessor:1'
  const sleeping = sleeper.db('admin').command({ sleep: 1, millis: 2_000, lock: 'none', comment })
  let isOver = false
  void sleeping.then(() => {
    isOver = true
  })
  const began = performance.now()
  const [listed, waited] = [as('lister'), as('unprivileged')].map((cluster) =>
    cluster.idle({ 'command.comment': comment }),
  )
  await listed
  expect(isOver).toBe(true)
  expect(performance.now() - began).toBeLessThan(limitMS)
  await waited
  expect(performance.now() - began).toBeGreaterThan(limitMS)
})

function withUser(uri: string, user: string): string {
  return uri.replace(/\/\/[^@]*@/, `//${user}:p@`)
}
