import type { Document } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { accepted, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { failPoint } from '../support/fail-point.ts'
import { expectAccepted } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { rowsOf } from '../support/rows.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** An instance is killed. Its successor has to wait until the lease of the killed instance, or its last write, has expired. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }
const body = { source: 'cluster0', destination: 'cluster1' }

const rows = (count: number): Document[] =>
  Array.from({ length: count }, (_, n) => ({ _id: n, n, u: n, h: `${n}`, words: `word ${n}`, at: new Date() }))

const expectEqual = async () =>
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])

it('afterDataCopy continues after kill -9 during the builds', async () => {
  const things = pair.sourceClient.db('app').collection('things')
  await things.insertMany(rows(100))
  await things.createIndexes([
    { key: { n: 1 }, name: 'plain' },
    { key: { u: 1 }, name: 'unique', unique: true },
    { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 3_600 },
    { key: { words: 'text' }, name: 'text' },
    { key: { n: -1, h: 1 }, name: 'hidden', hidden: true },
  ])
  const others = pair.sourceClient.db('app').collection('others')
  await others.insertMany(rows(10))
  await others.createIndex({ n: 1 })
  // Until this fail point is released, no index build on a collection with documents ends on the destination.
  await using builds = await failPoint(pair.destinationClient, 'hangAfterStartingIndexBuild', {})
  const isCopied = (tandem: Tandem) =>
    tandem.waitFor(({ info }) => info === 'change event application', {
      timeoutSeconds: 60,
      what: 'the end of the copy',
    })
  {
    await using tandem = await pair.startInstance()
    await startSync(tandem, { buildIndexes: 'afterDataCopy' })
    await builds.reached()
    await isCopied(tandem)
    await tandem.kill9()
  }
  await using tandem = await pair.startInstance()
  const again = await isCopied(tandem)
  expect(again).toMatchObject({ canCommit: false, indexBuilding: { indexesBuilt: 0, totalIndexesToBuild: 6 } })
  await rowsOf(pair.sourceClient, 'things').insertOne({ _id: 'later', u: 'later', at: new Date() })
  const arrived = async () =>
    expect(await rowsOf(pair.destinationClient, 'things').findOne({ _id: 'later' })).not.toBeNull()
  await vi.waitFor(arrived, patience)
  expect((await tandem.progress()).canCommit).toBe(false)
  await builds.release()
  await commit(tandem)
  await expectEqual()
})

it('README: the successor of a coordinator that crashes while it creates collections knows which ones the coordinator has created', async () => {
  const db = pair.sourceClient.db('app')
  for (const name of ['first', 'second']) await db.collection(name).insertOne({ name })
  const admin = pair.destinationClient.db('admin')
  const failing = (data: object) =>
    admin.command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data: { errorCode: 91, ...data } })
  await failing({ failCommands: ['setUserWriteBlockMode'] })
  await using all = await pair.startInstances('a', 'b')
  await all.allReach(({ state }) => state === 'IDLE', 'IDLE')
  const [a, b] = [all.members.get('a'), all.members.get('b')] as [Tandem, Tandem]
  for (const one of [a, b]) expect(await one.post('start', body)).toMatchObject(accepted)
  await all.allReach(({ state, coordinatorID }) => state === 'RUNNING' && coordinatorID === 'a', 'coordinated by a')

  await failing({ failCommands: ['create'], namespace: 'app.second' })
  const names = async () => {
    const listed = await pair.destinationClient.db('app').listCollections({}, { nameOnly: true }).toArray()
    return listed.map(({ name }) => name).sort()
  }
  await vi.waitFor(async () => expect(await names()).toContain('first'), patience)
  await a.kill9()
  await db.renameCollection('first', 'renamed')
  await admin.command({ configureFailPoint: 'failCommand', mode: 'off' })

  await commit(b)
  expect(await names()).toEqual(['renamed', 'second'])
})

it('2.5: a commit does not wait for an instance that is killed during it, and the instance restarts as COMMITTED', async () => {
  await rowsOf(pair.sourceClient, 'things').insertMany(
    Array.from({ length: 300 }, (_, _id) => ({ _id, text: `text of ${_id}` })),
  )
  await using all = await pair.startInstances('a', 'b', 'c')
  await all.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await all.post('start', body))
  await all.allReach(({ canCommit }) => canCommit, 'ready to commit')
  const coordinator = await all.coordinator()
  const [id, killed] = [...all.members].find(([, one]) => one !== coordinator) as [string, Tandem]
  expectAccepted(await all.post('commit'))
  await killed.waitFor(({ state }) => state === 'COMMITTING', { timeoutSeconds: 10, what: 'COMMITTING' })
  await all.kill9(id)
  await all.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED')
  const back = await all.start(id)
  await back.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 10, what: 'COMMITTED' })
  expect((await back.progress()).canWrite).toBe(true)
})
