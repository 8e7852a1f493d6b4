import { randomUUID } from 'node:crypto'
import { ObjectId } from 'mongodb'
import { describe, expect, it, onTestFinished } from 'vitest'
import { CopyOrder, type CopyOrderRequest } from '../../src/copy/copy-order.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { recordIdsOf, sampleIds } from '../../src/mongo/sample.ts'
import { clusters, createOnBoth, database, source, useTwoClusters } from '../definitions/reconcile-fixture.ts'

/** Tests which collections tandem copies in natural order. */

useTwoClusters()

const documents = 3_000
const GiB = 1024 ** 3
const detecting: CopyOrderRequest = { copyInNaturalOrder: null, detectRandomId: true }
const requesting: CopyOrderRequest = { copyInNaturalOrder: [{ database: '.' }], detectRandomId: false }
const ascending = (at: number) => at
const random = () => randomUUID()

/** Creates a collection with these `_id`s. Its entry says that it has 21 GiB. */
async function filled(idAt: (at: number) => unknown, options = {}): Promise<CatalogEntry> {
  await createOnBoth('c', options)
  const rows = Array.from({ length: documents }, (_, at) => ({ _id: idAt(at), at }))
  await source().collection<{ _id: unknown; at: number }>('c').insertMany(rows)
  return { ...(await clusters.entryOf(database, 'c', 'copying')), estimatedBytes: 21 * GiB }
}

const collectionOf = ({ database: db, name, uuid }: CatalogEntry) => ({ database: db, name, uuid })

async function decide(entry: CatalogEntry, request: CopyOrderRequest) {
  const ids = await sampleIds(clusters.source, collectionOf(entry), 600)
  return await new CopyOrder(clusters, request).decide(entry, ids)
}

describe('detectRandomId', () => {
  it.each<[string, (at: number) => unknown, boolean]>([
    ['UUIDs', random, true],
    ['numbers in a random order', () => Math.random(), true],
    ['ascending numbers', ascending, false],
    ['ObjectIds', () => new ObjectId(), false],
    ['tenants that write in turn', (at) => `${at % 10} ${String(at).padStart(8, '0')}`, false],
  ])('with %s', async (_, idAt, isRandom) => {
    const entry = await filled(idAt)
    expect(await decide(entry, detecting)).toEqual(isRandom ? { order: 'natural', reason: 'random _id' } : null)
    expect(await decide(entry, { ...detecting, detectRandomId: false })).toBeNull()
    expect(await decide({ ...entry, estimatedBytes: 19 * GiB }, detecting)).toBeNull()
  })

  it('reads record ids in the order of the _id index, for _ids of any type and without deleted documents', async () => {
    const entry = await filled((at) => (at % 3 === 0 ? at : at % 3 === 1 ? `${documents - at}` : { k: at }))
    const ids = await sampleIds(clusters.source, collectionOf(entry), documents)
    await source()
      .collection('c')
      .deleteMany({ at: { $gte: 10, $lt: 20 } })
    const expected = await source().collection('c').find().sort({ _id: 1 }).showRecordId(true).toArray()
    expect((await recordIdsOf(clusters.source, collectionOf(entry), ids)).map(Number)).toEqual([
      ...new Set(expected.map(({ $recordId }) => Number($recordId))),
    ])
  })

  it('does not apply to clustered, capped or converging collections, sharded sources, and reads of secondaries', async () => {
    const clustered = await filled(random, { clusteredIndex: { key: { _id: 1 }, unique: true } })
    expect(await decide(clustered, detecting)).toBeNull()
    for (const db of [clusters.sourceClient, clusters.destinationClient]) await db.db(database).dropDatabase()
    const entry = await filled(random)
    expect(await decide({ ...entry, converging: true }, detecting)).toBeNull()
    const { copyReadPreference } = clusters.source
    onTestFinished(() => {
      Object.assign(clusters.source, { copyReadPreference, sharded: false })
    })
    clusters.source.copyReadPreference = 'secondaryPreferred'
    expect(await decide(entry, detecting)).toBeNull()
    expect(await decide(entry, requesting)).toEqual({ order: 'natural', reason: 'requested' })
    Object.assign(clusters.source, { copyReadPreference, sharded: true })
    expect(await decide(entry, detecting)).toBeNull()
  })
})

describe('copyInNaturalOrder', () => {
  it('applies to the named collections regardless of their _ids', async () => {
    const entry = await filled(ascending)
    const named = { ...requesting, copyInNaturalOrder: [{ database, collections: ['c'] }] }
    const others = { ...requesting, copyInNaturalOrder: [{ database, collections: ['d'] }] }
    expect(await decide({ ...entry, estimatedBytes: 0 }, named)).toEqual({ order: 'natural', reason: 'requested' })
    expect(await decide(entry, others)).toBeNull()
  })

  it('does not apply to collections that cannot be read in natural order, and the log says why', async () => {
    const entry = await filled(ascending)
    const orderOf = async (changed: CatalogEntry) => await decide(changed, requesting)
    expect(await orderOf({ ...entry, converging: true })).toMatchObject({
      order: '_id',
      reason: expect.stringContaining('existed'),
    })
    clusters.source.idsMayRepeat = true
    onTestFinished(() => {
      clusters.source.idsMayRepeat = false
    })
    expect(await orderOf(entry)).toMatchObject({ order: '_id', reason: expect.stringContaining('two shards') })
  })
})
