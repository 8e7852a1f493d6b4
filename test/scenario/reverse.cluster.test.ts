import type { Document, IndexDescriptionInfo, MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { failPoint } from '../support/fail-point.ts'
import { patience, ReversiblePair, reverse, reversible, setBlocking, things } from '../support/reversible-pair.ts'
import type { Row } from '../support/rows.ts'
import { startSync } from '../support/tandem-process.ts'

/** A reversal between two clusters copies nothing again, and applies the writes made since `canWrite` in the other direction. */

const pair = new ReversiblePair({ oplogSizeMB: 1024, extraArgs: ['--setParameter', 'ttlMonitorSleepSecs=1'] })

const blocked = (client: MongoClient) =>
  client
    .db('app')
    .collection('probe')
    .insertOne({})
    .then(
      () => false,
      (error: { code: number }) => error.code === 371,
    )

it('facts 2.5: reverse goes REVERSING to RUNNING with the direction swapped, and writes made since canWrite flow back', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }])
  await using tandem = await pair.startTandem()
  await startSync(tandem, reversible)
  const before = await commit(tandem)
  expect(await pair.generations()).toEqual([null, 0])
  await things(pair.rightClient).insertOne({ _id: 'between' })
  await things(pair.rightClient).updateOne({ _id: 1 }, { $set: { changed: true } })
  await things(pair.rightClient).deleteOne({ _id: 2 })

  const reversed = await reverse(tandem)
  expect(reversed).toMatchObject({
    state: 'RUNNING',
    canCommit: true,
    canWrite: false,
    info: 'change event application',
    directionMapping: {
      Source: before.directionMapping?.Destination,
      Destination: before.directionMapping?.Source,
    },
    mongosyncID: 'coordinator',
    coordinatorID: 'coordinator',
  })
  const { estimatedTotalBytes, estimatedCopiedBytes } = reversed.collectionCopy ?? {}
  expect(estimatedCopiedBytes).toBe(estimatedTotalBytes)
  expect(estimatedTotalBytes).toBe(before.collectionCopy?.estimatedTotalBytes)
  expect(await pair.generations()).toEqual([1, null])
  // The verifier does not read the documents again that the verdict covers, so no verified range has documents.
  const verified = await pair.leftClient.db(metadataDatabase).collection('verifiedRanges').find().toArray()
  expect(verified.map(({ source, destination }) => [source, destination])).toEqual([[0, 0]])
  // The new source accepts writes; the new destination stays blocked.
  expect([await blocked(pair.leftClient), await blocked(pair.rightClient)]).toEqual([true, false])
  await things(pair.rightClient).insertOne({ _id: 'after' })
  await vi.waitFor(async () => expect(await things(pair.leftClient).findOne({ _id: 'after' })).not.toBeNull(), patience)
  expect(await things(pair.leftClient).find().sort({ _id: 1 }).toArray()).toEqual([
    { _id: 1, changed: true },
    { _id: 3 },
    { _id: 'after' },
    { _id: 'between' },
  ])

  const after = await commit(tandem)
  expect(after).toMatchObject({ canWrite: true, info: 'commit completed', lagTimeSeconds: 0 })
  expect(after.directionMapping).toEqual(reversed.directionMapping)
  expect([await blocked(pair.leftClient), await blocked(pair.rightClient)]).toEqual([false, true])
  await pair.leftClient.db('app').collection('probe').drop()
  await pair.rightClient.db('admin').command({ setUserWriteBlockMode: 1, global: false })
  await pair.rightClient.db('app').collection('probe').drop()
  await pair.expectEqual()
})

it('after a reversal, the verifier names a foreign write on the new destination, and repair undoes the write', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }, { _id: 2 }])
  await using tandem = await pair.startTandem()
  await startSync(tandem, reversible)
  await commit(tandem)
  await reverse(tandem)
  const admin = pair.leftClient.db('app')
  await admin.command({
    update: 'things',
    updates: [{ q: { _id: 2 }, u: { $set: { foreign: 1 } } }],
    mayBypassWriteBlocking: true,
  })
  expect(await tandem.post('commit')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })
  const found = await (await fetch(`${tandem.url}/api/v1/verification/mismatches`)).json()
  expect(found).toMatchObject({
    total: 1,
    mismatches: [{ namespace: 'app.things', kind: 'content', field: 'foreign', by: 'foreignWrite' }],
  })
  expect((await tandem.post('repair')).status).toBe(200)
  expect(await tandem.post('resume')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
  expect(await things(pair.leftClient).findOne({ _id: 2 })).toEqual({ _id: 2 })
})

it('facts 2.5: reverse follows DDL made between canWrite and reverse, and after', async () => {
  const [a, b] = [pair.leftClient.db('app'), pair.rightClient.db('app')]
  for (const name of ['dropped', 'renamed', 'one', 'two', 'recreated', 'modified']) {
    await a.collection(name).insertOne({ name })
  }
  await a.collection('modified').createIndexes([
    { key: { a: 1 }, name: 'a' },
    { key: { u: 1 }, name: 'u', unique: true, sparse: true },
    { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 100_000 },
    { key: { gone: 1 }, name: 'no longer ttl', expireAfterSeconds: 100_000 },
  ])
  await pair.leftClient.db('gone').collection('all').insertOne({})
  await using tandem = await pair.commitSync()

  const change = async (round: string) => {
    await b.createCollection(`new ${round}`, { collation: { locale: 'en' } })
    await b.collection(`new ${round}`).insertOne({ round })
    await b.collection(`new ${round}`).createIndex({ u: 1 }, { unique: true })
    await b.createCollection(`view ${round}`, { viewOn: 'one', pipeline: [] })
    await b.collection('one').rename('temporary')
    await b.collection('two').rename('one')
    await b.collection('temporary').rename('two')
  }
  await change('early')
  await b.collection('dropped').drop()
  await b.collection('recreated').drop()
  await b.collection('recreated').insertOne({ again: true })
  await b.collection('renamed').rename('renamed again')
  await pair.rightClient.db('gone').dropDatabase()
  await b.collection('modified').dropIndex('a')
  await b.collection('modified').dropIndex('u')
  await b.collection('modified').createIndex({ a: -1 }, { name: 'a' })
  await b.collection('modified').createIndex({ u: 1 }, { name: 'u' })
  await b.collection('modified').dropIndex('no longer ttl')
  await b.collection('modified').createIndex({ gone: 1 }, { name: 'no longer ttl' })
  await b.command({
    collMod: 'modified',
    validator: { n: 1 },
    index: { name: 'ttl', expireAfterSeconds: 90_000, hidden: true },
  })
  await pair.rightClient
    .db('moved')
    .collection('into')
    .insertOne({ _id: 1 as never })
  await pair.rightClient.db('admin').command({ renameCollection: 'app.renamed again', to: 'moved.elsewhere' })
  await reverse(tandem)
  await change('late')
  await commit(tandem)
  await pair.expectEqual()
})

it('facts 2.5: reverse defers unique, TTL, hidden and capped on the new destination, and the next commit restores them', async () => {
  const db = pair.leftClient.db('app')
  await db.collection('kinds').createIndexes([
    { key: { u: 1 }, name: 'unique', unique: true },
    { key: { u: 1, v: 1 }, name: 'hidden unique', unique: true, hidden: true },
    { key: { h: 1 }, name: 'hidden', hidden: true },
    { key: { p: 1 }, name: 'prepared' },
    { key: { t: 1 }, name: 'conflicting' },
    { key: { t: 1 }, name: 'unique conflicting', unique: true },
    { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 2 },
  ])
  await db.command({ collMod: 'kinds', index: { name: 'prepared', prepareUnique: true } })
  await db.createCollection('capped', { capped: true, size: 100_000, max: 3 })
  const rows = [1, 2, 3, 4].map((_id) => ({ _id, u: _id, t: _id, p: _id }) as Row)
  await db.collection<Row>('kinds').insertMany(rows)
  await db.collection<Row>('capped').insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }])
  await using tandem = await pair.commitSync()

  for (const [from, to, round] of [
    [pair.rightClient, pair.leftClient, 1],
    [pair.leftClient, pair.rightClient, 2],
  ] as const) {
    await from
      .db('app')
      .collection<Row>('capped')
      .insertOne({ _id: `c${round}` })
    await reverse(tandem)
    expect(await indexes(to)).toEqual({
      unique: {},
      'hidden unique': {},
      hidden: {},
      prepared: {},
      conflicting: {},
      'unique conflicting': {},
      ttl: { expireAfterSeconds: 2_147_483_647 },
    })
    const [capped] = await to.db('app').listCollections({ name: 'capped' }).toArray()
    expect((capped as { options?: Document }).options?.['size']).toBeGreaterThan(1e12)
    // Two documents exchange their unique values. Under a unique index, single writes in any order would fail.
    const kinds = from.db('app').collection<Row>('kinds')
    for (let exchange = 0; exchange < 10; exchange++) {
      await kinds.updateOne({ u: 1 }, { $set: { u: 100 } })
      for (const u of [2, 3, 4]) await kinds.updateOne({ u }, { $set: { u: u - 1 } })
      await kinds.updateOne({ u: 100 }, { $set: { u: 4 } })
    }
    await kinds.insertOne({
      _id: `expires ${round}`,
      u: `e${round}`,
      t: `e${round}`,
      p: `e${round}`,
      at: new Date(0),
    })
    await vi.waitFor(async () => expect(await kinds.countDocuments()).toBe(4), patience)
    await from
      .db('app')
      .collection<Row>('capped')
      .insertMany([{ _id: `d${round}` }, { _id: `e${round}` }])
    await commit(tandem)
    expect((await indexes(to))['unique conflicting']).toEqual({ unique: true })
    await pair.expectEqual()
    await expect(to.db('app').collection<Row>('kinds').insertOne({ _id: 'twice', u: 1 })).rejects.toMatchObject({
      code: 11000,
    })
  }
})

/** Returns the options of each index of app.kinds. */
async function indexes(client: MongoClient): Promise<Record<string, Document>> {
  const listed: IndexDescriptionInfo[] = await client.db('app').collection('kinds').listIndexes().toArray()
  return Object.fromEntries(
    listed
      .filter(({ name }) => name !== '_id_')
      .map(({ v: _v, key: _key, name, ...options }) => [name, options as Document]),
  )
}

it('facts 2.5: reverse restores documents that were deleted on the former source while it was unblocked', async () => {
  await things(pair.leftClient).createIndex({ at: 1 }, { expireAfterSeconds: 1 })
  await things(pair.leftClient).insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }])
  await using tandem = await pair.commitSync()
  await setBlocking(pair.leftClient, false)
  await things(pair.leftClient).deleteMany({ _id: { $in: [1, 2] } })
  await setBlocking(pair.leftClient, true)
  await things(pair.rightClient).deleteOne({ _id: 2 })
  await reverse(tandem)
  await commit(tandem)
  await pair.expectEqual()
  expect(await things(pair.leftClient).countDocuments()).toBe(2)
})

it('when limits change while an instance releases its lease on the former destination, it does not acquire that lease again', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }])
  await using tandem = await pair.commitSync()
  const releasedLine = '"message":"lease given back"'
  const releases = () => tandem.output().split(releasedLine).length - 1
  await vi.waitFor(() => expect(releases()).toBe(1), patience)
  const data = {
    failCommands: ['update'],
    namespace: `${metadataDatabase}.leases`,
    blockConnection: true,
    blockTimeMS: 1_000,
  }
  await using _ = await failPoint(pair.rightClient, 'failCommand', data)
  expect(await tandem.post('reverse')).toEqual(accepted)
  // The instance logs the line before it sends the release to the destination.
  await vi.waitFor(() => expect(releases()).toBe(2), { ...patience, interval: 5 })
  const change = { method: 'PATCH', body: JSON.stringify({ readConcurrency: 2 }) }
  expect((await fetch(`${tandem.url}/api/v1/limits`, change)).status).toBe(200)
  expect(await canCommit(tandem)).toMatchObject({ state: 'RUNNING', limits: { readConcurrency: 2 } })
  expect(tandem.output().split(releasedLine).at(-1)).not.toContain('"message":"lease taken"')
})
