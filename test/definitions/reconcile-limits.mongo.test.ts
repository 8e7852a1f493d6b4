import { describe, expect, it } from 'vitest'
import { idElementOf } from '../../src/documents/identity.ts'
import { errorDetails } from '../../src/domain/error-details.ts'
import { FatalError } from '../../src/domain/errors.ts'
import { destinationName, identitiesOf } from '../apply/two-clusters.ts'
import { insertRaw, rawDocument } from '../support/bson-values.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  idElements,
  numbered,
  source,
  useTwoClusters,
} from './reconcile-fixture.ts'

useTwoClusters()

describe('a document that the source no longer has', () => {
  it('is recorded before it is deleted while its collection is copied, so that a delayed insert of the copy is undone', async () => {
    await createOnBoth('c')
    const documents = numbered(0, 5)
    await insertRaw(destination(), 'c', documents)
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const fail = { failCommands: ['delete'], appName: destinationName, errorCode: 91 }
    const admin = clusters.destinationClient.db('admin')
    await admin.command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data: fail })
    const reconciling = clusters.reconcile(entry, identitiesOf(idElements(documents)))
    while (clusters.context.retried.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    // The delete has failed so far, and the record already exists, so a crash at this moment would not lose the record.
    expect(await destination().collection('c').countDocuments()).toBe(5)
    const tombstones = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(tombstones.map(({ idElement }) => idElement)).toEqual(idElements(documents))
    await admin.command({ configureFailPoint: 'failCommand', mode: 'off' })
    await reconciling
    expect(await destination().collection('c').countDocuments()).toBe(0)
    expect(entry.hasTombstones).toBe(true)
    // Retries do not record an identity twice.
    expect(await clusters.metadata.tombstones.read(entry.uuid, null, 10)).toHaveLength(5)
  })

  it('is not recorded once its collection is copied', async () => {
    await createOnBoth('c')
    const documents = numbered(0, 5)
    await insertRaw(destination(), 'c', documents)
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf(idElements(documents)))
    expect(await destination().collection('c').countDocuments()).toBe(0)
    expect(await clusters.metadata.tombstones.read(entry.uuid, null, 10)).toEqual([])
  })
})

describe('a collection that is renamed or dropped while it is read', () => {
  /** Runs `work` right after the first reply to a find. */
  function afterFirstFind(work: () => Promise<unknown>): void {
    const { source } = clusters
    const read = source.read.bind(source)
    source.read = async (database, command, options) => {
      const reply = await read(database, command, options)
      if ('find' in command) {
        Reflect.deleteProperty(source, 'read')
        await work()
      }
      return reply
    }
  }

  it('is read under its new name, and none of its documents counts as deleted', async () => {
    await createOnBoth('c')
    const documents = numbered(0, 50, 'x'.repeat(400_000))
    await insertRaw(source(), 'c', documents)
    await insertRaw(destination(), 'c', numbered(0, 70, 'old'))
    const entry = await clusters.entryOf(database, 'c')
    afterFirstFind(() => source().collection('c').rename('d'))
    await clusters.reconcile(entry, identitiesOf(idElements(numbered(0, 70))))
    expect(entry.sourceName).toBe('d')
    await destination().collection('c').rename('d')
    await clusters.expectEqual(database)
  })

  it('is read under its new name after an earlier rename, even if another collection has the old name', async () => {
    await createOnBoth('c')
    await insertRaw(source(), 'c', numbered(0, 5))
    const entry = await clusters.entryOf(database, 'c')
    await source().collection('c').rename('d')
    await insertRaw(source(), 'c', numbered(0, 3, 'another'))
    await clusters.reconcile(entry, identitiesOf(idElements(numbered(0, 10))))
    expect(entry.sourceName).toBe('d')
    expect(await destination().collection('c').countDocuments({ text: 'x' })).toBe(5)
  })

  it('is not changed on the destination after a drop, because the drop event follows', async () => {
    await createOnBoth('c')
    await insertRaw(destination(), 'c', numbered(0, 5))
    const entry = await clusters.entryOf(database, 'c')
    await source().collection('c').drop()
    await clusters.reconcile(entry, identitiesOf(idElements(numbered(0, 5))))
    expect(await destination().collection('c').countDocuments()).toBe(5)
  })
})

describe('an index on the destination that refuses a document', () => {
  it('is dropped before its event arrives if the source no longer has the index', async () => {
    await createOnBoth('c')
    await destination().collection('c').createIndex({ place: '2dsphere' })
    await source()
      .collection<{ _id: number; place: string }>('c')
      .insertMany([
        { _id: 1, place: 'nowhere' },
        { _id: 2, place: 'x' },
      ])
    const entry = await clusters.entryOf(database, 'c')
    let asked = 0
    clusters.dropVanishedIndexes = async () => {
      asked += 1
      if (asked > 1) return false
      await destination().collection('c').dropIndexes()
      return true
    }
    await clusters.reconcile(entry, identitiesOf(idElements([rawDocument([['_id', 1]]), rawDocument([['_id', 2]])])))
    await clusters.expectEqual(database)
  })

  it('causes DocumentRefused if the source has the index too', async () => {
    await createOnBoth('c')
    await destination().collection('c').createIndex({ place: '2dsphere' })
    await source().collection<{ _id: number; place: string }>('c').insertOne({ _id: 1, place: 'nowhere' })
    const entry = await clusters.entryOf(database, 'c')
    clusters.dropVanishedIndexes = async () => false
    const error = await clusters
      .reconcile(entry, identitiesOf(idElements([rawDocument([['_id', 1]])])))
      .catch((error) => error)
    expect(error).toBeInstanceOf(FatalError)
    expect(error).toMatchObject({ failure: 'DocumentRefused' })
    const text = new RegExp(
      `^writing documents: the destination refuses the document of ${database}\\.c with _id .*1.* ` +
        `\\((insert|update) on cluster\\d, ${database}\\.c: Location16755 \\(16755\\): Can't extract geo keys\\)\\. Find the index`,
    )
    expect(error.message).toMatch(text)
    expect(error.message).not.toContain('nowhere')
    expect(error.cause).toMatchObject({ code: 16755 })
    expect(errorDetails('DocumentRefused', error)).toEqual({
      cluster: expect.stringMatching(/^cluster\d$/),
      codeName: 'Location16755',
      lastError: expect.stringMatching(
        /^(insert|update) on cluster\d, .+: Location16755 \(16755\): Can't extract geo keys$/,
      ),
      lost: 'nothing',
      docs: 'docs/troubleshooting.md#documentrefused',
    })
  })
})

describe('reconciliation', () => {
  it('handles three new and existing documents of 15.9 MB in one batch', async () => {
    await createOnBoth('c')
    const large = (id: number, fill: string) =>
      rawDocument([
        ['_id', id],
        ['text', fill.repeat(15.9 * 1024 * 1024)],
      ])
    for (const id of [1, 2, 3]) await insertRaw(source(), 'c', [large(id, 'x')])
    await insertRaw(destination(), 'c', [large(2, 'y')])
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf([1, 2, 3, 4].map((id) => idElementOf(rawDocument([['_id', id]])))))
    await clusters.expectEqual(database)
  })

  it('handles documents from events that do not fit into one message', async () => {
    await createOnBoth('c')
    const documents = numbered(0, 250, 'x'.repeat(250_000))
    for (let from = 0; from < 250; from += 50) await insertRaw(source(), 'c', documents.slice(from, from + 50))
    const entry = await clusters.entryOf(database, 'c')
    for (const fresh of [true, false]) {
      const identities = identitiesOf(idElements(documents))
      for (const [at, identity] of [...identities.values()].entries()) {
        Object.assign(identity, { document: documents[at], fresh })
      }
      await clusters.reconcile(entry, identities)
      await clusters.expectEqual(database)
      await destination()
        .collection('c')
        .updateMany({}, { $set: { text: 'old' } })
    }
  })

  it('handles a hundred thousand small identities in one batch', async () => {
    await createOnBoth('c')
    const all = Array.from({ length: 100_000 }, (_, id) =>
      rawDocument([
        ['_id', id],
        ['v', id % 7],
      ]),
    )
    await insertRaw(
      source(),
      'c',
      all.filter((_, id) => id % 3 !== 0),
    )
    await insertRaw(
      destination(),
      'c',
      all.filter((_, id) => id % 4 === 0),
    )
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf(idElements(all)))
    await clusters.expectEqual(database)
  })

  it('handles long _ids that do not fit into one command', async () => {
    await createOnBoth('c')
    const ids = Array.from({ length: 40 }, (_, at) => `${'i'.repeat(600_000)}${at}`)
    const documents = ids.map((id) => rawDocument([['_id', id]]))
    for (const document of documents.slice(0, 25)) await insertRaw(source(), 'c', [document])
    for (const document of documents.slice(15)) await insertRaw(destination(), 'c', [document])
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf(idElements(documents)))
    await clusters.expectEqual(database)
  })
})
