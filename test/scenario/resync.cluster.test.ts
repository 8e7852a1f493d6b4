import type { Document, MongoClient } from 'mongodb'
import { afterEach, expect, test } from 'vitest'
import type { CollectionRow } from '../../src/domain/collection-figures.ts'
import { commitEqual } from '../support/commit-equal.ts'
import { compareBoth } from '../support/compare-both.ts'
import { holdCopy } from '../support/fail-point.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

/** Single collections of a running sync are compared with the source again. */

const pair = pairedSets()
let tandem: Tandem | null = null
let several: Instances | null = null

afterEach(async () => {
  await tandem?.stop()
  await several?.stop()
  tandem = several = null
})

interface Row extends Document {
  _id: number | string
}

const rowsOf = (client: MongoClient, name: string) => client.db('app').collection<Row>(name)
const bodyOf = (...names: string[]) => ({ namespaces: names.map((collection) => ({ database: 'app', collection })) })
const unblocked = { enableUserWriteBlocking: 'none', verification: { enabled: false } }

async function seed(...names: string[]): Promise<void> {
  for (const name of names) {
    await rowsOf(pair.sourceClient, name).insertMany(Array.from({ length: 500 }, (_, _id) => ({ _id, n: 0 })))
  }
}

/** What nobody but tandem should do: no event of the source makes it good again. */
async function corrupt(name: string): Promise<void> {
  const rows = rowsOf(pair.destinationClient, name)
  await rows.updateOne({ _id: 1 }, { $set: { n: 'corrupt' } })
  await rows.deleteMany({ _id: { $in: [2, 3] } })
  await rows.insertOne({ _id: 'extra' })
}

const canCommit = (running: Tandem) =>
  running.waitFor((progress) => progress.canCommit, { timeoutSeconds: 120, what: 'canCommit' })

test('README: resync makes the given collections equal again, and touches no other', async () => {
  await seed('things', 'others', 'dropped')
  tandem = await pair.startInstance()
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  for (const name of ['things', 'others']) await corrupt(name)
  await rowsOf(pair.destinationClient, 'dropped').drop()

  await using held = await holdCopy(pair.destinationClient, 'app.things')
  expect(await tandem.post('resync', bodyOf('things', 'dropped', 'things'))).toMatchObject({ status: 200 })
  expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: false })
  await tandem.waitFor((progress) => progress.convergingCollections === 1, { timeoutSeconds: 60, what: 'converging' })
  const shown = await fetch(`${tandem.url}/metrics`).then((response) => response.text())
  expect(shown).toMatch(/^tandem_converging_collections 1$/m)
  const { collections } = (await fetch(`${tandem.url}/api/v1/collections`).then((response) => response.json())) as {
    collections: CollectionRow[]
  }
  expect(collections.filter(({ copy }) => copy.converging)).toMatchObject([{ namespace: 'app.things' }])
  await held.release()
  await rowsOf(pair.sourceClient, 'things').updateOne({ _id: 4 }, { $inc: { n: 1 } })
  await canCommit(tandem)
  expect(await rowsOf(pair.destinationClient, 'things').findOne({ _id: 1 })).toEqual({ _id: 1, n: 0 })
  expect(await rowsOf(pair.destinationClient, 'things').countDocuments()).toBe(500)
  expect(await rowsOf(pair.destinationClient, 'dropped').countDocuments()).toBe(500)
  expect(await rowsOf(pair.destinationClient, 'others').countDocuments()).toBe(499)
  expect(await tandem.progress()).not.toHaveProperty('convergingCollections')

  expect(await tandem.post('resync', bodyOf('others'))).toMatchObject({ status: 200 })
  await commitEqual(tandem, pair)
  expect(await convergencesOf(pair.destinationClient)).toBe(2)
})

test('what is no collection of the sync is refused by its field, and nothing changes', async () => {
  await seed('things')
  await pair.sourceClient.db('app').createCollection('view', { viewOn: 'things', pipeline: [] })
  tandem = await pair.startInstance()
  expect(await tandem.post('resync', bodyOf('things'))).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  for (const name of ['unknown', 'view', 'system.views']) {
    const refused = await tandem.post('resync', bodyOf('things', name))
    expect(refused).toMatchObject({ status: 400, body: { error: 'InvalidRequest' } })
    expect(refused.body.errorDescription).toContain(`namespaces[1]: app.${name}`)
  }
  expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: true })
  expect(await convergencesOf(pair.destinationClient)).toBe(0)
})

test('two instances under a workload: a resync through one of them is carried out by both, and verified', async () => {
  const name = 'resync under a workload'
  await seedData(pair.source.uri, name, 0.2)
  await seed('things')
  several = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  for (const one of several.members.values()) await startSync(one, { enableUserWriteBlocking: 'none' })
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  const workload = createWorkload({ uri: pair.source.uri, seed: name, ddl: true, transactions: true, opsPerSecond: 20 })
  const ended = new AbortController()
  const writing = workload.run(ended.signal)
  await corrupt('things')
  const [first, second] = [...several.members.values()] as [Tandem, Tandem]
  expect(await first.post('resync', bodyOf('things'))).toMatchObject({ status: 200 })
  await second.waitFor((progress) => !progress.canCommit, { timeoutSeconds: 30, what: 'resync' })
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  ended.abort()
  await writing
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  expectAccepted(await several.post('commit'))
  await several.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
})
