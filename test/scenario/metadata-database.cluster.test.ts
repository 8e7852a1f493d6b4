import type { MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import { CleanedPair } from '../clean/cleaned-pair.ts'
import { moveToOlderDatabase } from '../older/older-database.ts'
import { accepted, canCommit, commit, committed, failed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { databaseNames } from '../support/databases.ts'

/** A new sync keeps its metadata in the new database, and a sync of an earlier release keeps it in the older database. */

const pair = new CleanedPair()
const { sets } = pair
const internalOf = async (client: MongoClient): Promise<string[]> =>
  (await databaseNames(client)).filter((name) => name === metadataDatabase || name === olderMetadataDatabase)
const internal = async () => [await internalOf(sets.sourceClient), await internalOf(sets.destinationClient)]
const older = (client: MongoClient) => client.db(olderMetadataDatabase).collection<{ _id: string }>('sync')

/** Stores the record with which an earlier release begins a sync between the same clusters. */
async function storeOlderRecord(): Promise<void> {
  const record = await pair.stored('sync').findOne({ _id: 'sync' })
  if (!record) throw new Error('there is no record')
  const u = { ...record }
  const updates = [{ q: { _id: 'sync' }, u, upsert: true }]
  await sets.destinationClient
    .db(olderMetadataDatabase)
    .command({ update: 'sync', updates, mayBypassWriteBlocking: true })
}

async function expectEqual(): Promise<void> {
  expect((await compareBoth(sets.source.uri, sets.destination.uri)).differences).toEqual([])
}

it('a new sync keeps its metadata in the new database, and reserves the older name', async () => {
  await using tandem = await pair.startedSync()
  expect(await internal()).toEqual([[], [metadataDatabase, olderMetadataDatabase]])
  expect(await older(sets.destinationClient).find().toArray()).toMatchObject([{ supersededBy: metadataDatabase }])
  const names = await sets.destinationClient.db(olderMetadataDatabase).listCollections({}, { nameOnly: true }).toArray()
  expect(names.map(({ name }) => name)).toEqual(['sync'])
  await commit(tandem)
  await expectEqual()
})

it('a sync of an earlier release keeps its metadata in the older database until clean removes it, also after a reversal', async () => {
  await (await pair.startedSync({}, pair.reversible)).kill9()
  for (const client of pair.clients) await moveToOlderDatabase(client)
  await sets.sourceClient.db('shop').collection('orders').insertOne({ number: 3 })
  {
    await using tandem = await sets.startInstance()
    await using joined = await sets.startInstance({ id: 'another' })
    await canCommit(tandem)
    const body = { source: 'cluster0', destination: 'cluster1', ...pair.reversible }
    expect(await joined.post('start', body)).toMatchObject(accepted)
    await canCommit(joined)
    for (const one of [tandem, joined]) expect((await one.post('commit')).status).toBe(200)
    for (const one of [tandem, joined]) await committed(one)
    await expectEqual()
    expect(await internal()).toEqual([[], [olderMetadataDatabase]])
    await joined.stop()
    expect(await tandem.post('reverse')).toEqual(accepted)
    await canCommit(tandem)
    expect(await internal()).toEqual([[olderMetadataDatabase], [olderMetadataDatabase]])
    await tandem.kill9()
  }
  expect(await pair.clean({ yes: true, unblock: ['cluster0', 'cluster1'] })).toMatchObject({ code: 0 })
  await pair.expectClean()
  for (const client of pair.clients) for (const name of ['shop', 'afterwards']) await client.db(name).dropDatabase()
  await using tandem = await pair.startedSync()
  expect(await internal()).toEqual([[], [metadataDatabase, olderMetadataDatabase]])
  await commit(tandem)
})

it('an instance and the clean command refuse to work while each of the two databases holds a sync', async () => {
  await (await pair.startedSync()).kill9()
  await storeOlderRecord()
  await using tandem = await sets.startInstance()
  const { failure } = await failed(tandem)
  expect(failure).toMatchObject({ error: 'StoredStateConflict' })
  expect(failure?.errorDescription).toMatch(
    /^two syncs are stored .*mongosync_internal_tandem on cluster1, .*tandem_internal on cluster1/,
  )
  const before = await pair.footprints()
  expect(await pair.clean({ yes: true })).toMatchObject({
    code: 2,
    err: expect.stringContaining('StoredStateConflict'),
  })
  expect(await pair.footprints()).toEqual(before)
})

it('a commit does not enable writes while a sync of an earlier release between the same clusters exists', async () => {
  await using tandem = await pair.startedSync()
  await storeOlderRecord()
  expect(await tandem.post('commit')).toEqual(accepted)
  const { failure, canWrite } = await failed(tandem)
  expect({ failure, canWrite }).toMatchObject({ failure: { error: 'StoredStateConflict' }, canWrite: false })
  await pair.writeBlocked(() => older(sets.destinationClient).deleteOne({ _id: 'sync' }))
  expect(await tandem.post('resume')).toEqual(accepted)
  await committed(tandem)
  await expectEqual()
})
