import type { Document } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { applyLateDeletes, findLateWrites, type LateChangesParts } from '../../src/commit/late-changes.ts'
import { Catalog } from '../../src/domain/catalog.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  source,
  useTwoClusters,
} from '../definitions/reconcile-fixture.ts'

/**
 * Documents that can expire are deleted on the source after the commit timestamp. The event of a delete does not show whether the
 * TTL monitor or a user has deleted the document.
 */

const past = new Date(1_000)
const future = new Date('2100-01-01')
const clustered = { clusteredIndex: { key: { _id: 1 }, unique: true } } as Document

useTwoClusters()
beforeAll(async () => {
  for (const client of [clusters.sourceClient, clusters.destinationClient]) {
    await client.db('admin').command({ setParameter: 1, ttlMonitorEnabled: false })
  }
})

interface Row {
  _id: unknown
  [field: string]: unknown
}

/** Creates a collection with the same documents on both clusters, and returns it with the commit timestamp. */
async function synced(
  rows: Row[],
  options: Document,
  index: Document | null,
): Promise<{ parts: LateChangesParts; since: ClusterTime }> {
  await createOnBoth('sessions', options)
  for (const db of [source(), destination()]) await db.collection<Row>('sessions').insertMany(rows)
  if (index) await source().command({ createIndexes: 'sessions', indexes: [{ name: 'expiry', ...index }] })
  const catalog = new Catalog()
  catalog.add(await clusters.entryOf(database, 'sessions'))
  await appendOplogNote(clusters.source, 'commit')
  const selection = new Selection(clusters.source, { includeNamespaces: null, excludeNamespaces: null })
  const { writer, context } = clusters.dependencies
  const { source: from, destination: to } = clusters
  return { parts: { source: from, destination: to, selection, catalog, writer, context }, since: from.latest }
}

const left = async () => (await destination().collection<Row>('sessions').find().toArray()).map(({ _id }) => _id)

const ttl = { key: { at: 1 }, expireAfterSeconds: 60 }

describe('a late delete on the source', () => {
  it.each<[what: string, row: Row, options: Document, index: Document | null]>([
    ['its date', { _id: 1, at: past }, {}, ttl],
    ['one of several dates', { _id: 1, at: [future, past] }, {}, ttl],
    ['a date in a nested document', { _id: 1, a: [{ at: past }] }, {}, { ...ttl, key: { 'a.at': -1 } }],
    ['its date, in a partial index', { _id: 1, at: past, p: 5 }, {}, { ...ttl, partialFilterExpression: { p: 5 } }],
    ['its _id, in a clustered collection', { _id: past }, { ...clustered, expireAfterSeconds: 60 }, null],
  ])('of a document that had expired by %s is applied', async (_what, row, options, index) => {
    const { parts, since } = await synced([row, { _id: future, at: future }], options, index)
    await source()
      .collection<Row>('sessions')
      .deleteOne({ _id: row._id } as never)
    expect(await applyLateDeletes(parts, since)).toMatchObject({ expired: 1 })
    expect(await left()).toEqual([future])
    // When it is repeated, the document no longer exists.
    expect(await applyLateDeletes(parts, since)).toMatchObject({ expired: 1 })
    expect(await findLateWrites(parts, since)).toEqual({ total: 0, first: [] })
  })

  it.each<[what: string, row: Row, options: Document, index: Document | null]>([
    ['has a later date', { _id: 1, at: future }, {}, ttl],
    ['has no date', { _id: 1, at: 'never' }, {}, ttl],
    ['expires in a minute', { _id: 1, at: new Date() }, {}, ttl],
    ['is not in the partial index', { _id: 1, at: past, p: 4 }, {}, { ...ttl, partialFilterExpression: { p: 5 } }],
    ['has another _id, in a clustered collection', { _id: 1 }, { ...clustered, expireAfterSeconds: 60 }, null],
  ])('of a document that %s counts as a write of a user', async (_what, row, options, index) => {
    const { parts, since } = await synced([row, { _id: past, at: past, p: 5 }], options, index)
    await source().collection<Row>('sessions').deleteMany({})
    await expect(applyLateDeletes(parts, since)).rejects.toMatchObject({
      failure: 'SourceWritten',
      message: expect.stringMatching(new RegExp(`delete on ${database}\\.sessions, _id .*1`)),
    })
    expect(await left()).toHaveLength(2)
    expect(await findLateWrites(parts, since)).toMatchObject({ total: 1 })
  })
})

it('a late creation or drop of a time-series collection does not count as a write if the sync skips them, but that of a view does', async () => {
  const { parts: all, since } = await synced([{ _id: 1 }], {}, null)
  const every = { includeNamespaces: null, excludeNamespaces: null }
  const parts = { ...all, selection: new Selection(clusters.source, every, 'skip') }
  const timeseries = { timeField: 'at' }
  await source().createCollection('weather', { timeseries })
  expect(await findLateWrites(all, since)).toMatchObject({ first: [`create on ${database}.weather`] })
  expect(await findLateWrites(parts, since)).toEqual({ total: 0, first: [] })
  await source().dropCollection('weather')
  await destination().createCollection('weather', { timeseries })
  expect(await applyLateDeletes(parts, since)).toMatchObject({ expired: 0 })

  await source().createCollection('view', { viewOn: 'sessions', pipeline: [] })
  await destination().createCollection('view', { viewOn: 'sessions', pipeline: [] })
  expect(await findLateWrites(parts, since)).toEqual({ total: 1, first: [`create on ${database}.view`] })
  await source().dropCollection('view')
  await expect(applyLateDeletes(parts, since)).rejects.toMatchObject({ failure: 'SourceWritten' })
})
