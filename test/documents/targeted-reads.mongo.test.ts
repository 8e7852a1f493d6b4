import { BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { identityKey } from '../../src/documents/identity.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import type { ChangeEvent } from '../../src/domain/change-event.ts'
import { bsonType } from '../../src/domain/raw-bson.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { findDifferent } from '../../src/verify/recheck-documents.ts'
import { type Key, sum, TargetedPair } from './targeted-pair.ts'

/**
 * tandem reads changed documents of a sharded source by the shard key values of their events. The result is the same as that of
 * a read by `_id`.
 */
describe('reading changed documents of a sharded source', () => {
  const targeted = new TargetedPair('targeted-reads')
  const { on, content, pair, changes, apply } = targeted

  it.each<[string, Key, unknown[], (id: number) => Document]>([
    ['a number', { k: 1 }, [10, 20], (k) => ({ k })],
    ['a hashed text', { k: 'hashed' }, [], (id) => ({ k: `value ${id}` })],
    ['nested, and followed by another field', { 'a.b': 1, c: 1 }, [1, 2], (id) => ({ a: { b: id % 3 }, c: id })],
    ['a document', { k: 1 }, [{ x: 10 }, { x: 20 }], (x) => ({ k: { x } })],
    ['a decimal', { k: 1 }, [10, 20], (id) => ({ k: BSON.Decimal128.fromString(`${id}.0`) })],
    ['the _id and another field', { _id: 1, k: 1 }, [10, 20], (k) => ({ k })],
  ])('asks one shard for each updated document, if the key is %s', async (_what, key, splitAt, fields) => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, ...fields(_id) }))
    const entry = await pair(key, splitAt, documents)
    await using _ = targeted.asked
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    const counts = await apply(entry, events)
    expect(sum(counts)).toBe(30)
    expect(counts.filter((count) => count > 0).length).toBeGreaterThan(1)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('finds documents without key fields, and with null, NaN, -0, a pattern, undefined and texts that differ in case', async () => {
    const values = [
      null,
      Number.NaN,
      -0,
      0,
      new BSON.BSONRegExp('^a', 'i'),
      'a',
      'A',
      'ä',
      new BSON.MinKey(),
      new BSON.MaxKey(),
    ]
    const documents: Document[] = values.map((k, _id) => ({ _id, k }))
    const entry = await pair({ k: 1 }, [0, 'a'], [...documents, { _id: 100 }, { _id: 101, k: { $x: 1 } }])
    await using _ = targeted.asked
    // The driver cannot send the deprecated type `undefined`.
    const ofUndefined = Buffer.from(BSON.serialize({ _id: 102, k: null }))
    ofUndefined[ofUndefined.lastIndexOf(bsonType.null)] = bsonType.undefined
    for (const name of ['source', 'copy']) {
      await targeted.client.db('app').command({ insert: name, documents: rawSequence('documents', [ofUndefined]) })
    }
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    expect(events.filter(({ kind }) => kind === 'update')).toHaveLength(values.length + 3)
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('finds a document whose key was changed in place, between shards, and back, in one batch and in several', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2, 3, 4].map((_id) => ({ _id, k: _id })),
    )
    await using _ = targeted.asked
    const events = await changes(entry, async () => {
      await on('source').updateOne({ _id: 1, k: 1 }, { $set: { k: 5 } })
      await on('source').updateOne({ _id: 2, k: 2 }, { $set: { k: 25 } })
      await on('source').updateOne({ _id: 3, k: 3 }, { $set: { k: 15 } })
      await on('source').updateOne({ _id: 3, k: 15 }, { $set: { k: 3 } })
      await on('source').replaceOne({ _id: 4, k: 4 }, { k: 6, x: 'x'.repeat(300_000) })
    })
    expect(events.length).toBeGreaterThan(5)
    for (const event of events) await apply(entry, [event])
    expect(await content('copy')).toEqual(await content('source'))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    await on('copy').updateOne({ _id: 1, k: 5 }, { $set: { k: 1 } })
    await apply(entry, events.toReversed())
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('does not let one of two documents with the same _id replace the other', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = targeted.asked
    for (const name of ['source', 'copy']) await on(name).insertOne({ _id: 1, k: 25 })
    const events = await changes(entry, () => on('source').updateOne({ _id: 1, k: 1 }, { $set: { x: 1 } }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(2)
  })

  it('does not overwrite a document with another one of the same _id whose replacement event contains the whole document', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = targeted.asked
    for (const name of ['source', 'copy']) await on(name).insertOne({ _id: 1, k: 25 })
    const events = await changes(entry, () => on('source').replaceOne({ _id: 1, k: 1 }, { k: 1, x: 1 }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(2)
  })

  it.each([
    ['an update', { $set: { x: 1 } }],
    ['a replacement', null],
  ] as const)(
    'locates the collection on the destination again when %s finds that it was renamed',
    async (_what, update) => {
      const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
      await using _ = targeted.asked
      const events = await changes(entry, () =>
        update
          ? on('source').updateOne({ _id: 1 }, update)
          : on('source').replaceOne({ _id: 1 }, { k: 1, x: 1 } as never),
      )
      await targeted.client.db('app').renameCollection('copy', 'renamed')
      const located: string[] = []
      await apply(entry, events, async ({ name }) => {
        located.push(name)
        return false
      })
      expect(located).toEqual(['copy'])
      expect(entry.sourceName).toBe('source')
    },
  )

  it('compares updated documents with one read per document, and finds every difference', async () => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id }))
    const entry = await pair({ k: 1 }, [10, 20], documents)
    await using _ = targeted.asked
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    await apply(entry, events)
    const idElements = events.map(({ idElement }) => idElement as Buffer)
    const keys = new Map(events.map((event) => [identityKey(event.idElement as Buffer), event.documentKey as Buffer]))
    const clusters = { source: targeted.cluster, destination: targeted.cluster }
    const differing = async () => {
      await appendOplogNote(targeted.cluster, 'test')
      const found = await findDifferent(clusters, entry, idElements, targeted.cluster.latest, keys)
      // An _id that the destination has twice is returned once or twice, depending on which shard answers first.
      return [...new Set(found.map((idElement) => idElement.readInt32LE(5)))].sort((one, other) => one - other)
    }
    targeted.asked.restart()
    expect(await differing()).toEqual([])
    expect(sum((await targeted.asked.read()).map(({ documents }) => documents))).toBe(30)
    await on('source').deleteOne({ _id: 1, k: 1 })
    await on('source').updateOne({ _id: 2, k: 2 }, { $set: { k: 25 } })
    await on('copy').updateOne({ _id: 3, k: 3 }, { $set: { x: 2 } })
    await on('copy').deleteOne({ _id: 4, k: 4 })
    await on('copy').insertOne({ _id: 5, k: 25 })
    await on('source').insertOne({ _id: 6, k: 25 })
    await on('copy').insertOne({ _id: 6, k: 25 })
    // A read of one shard does not find the second document with the _id 6. A read by _id finds both, and they are equal.
    expect(await differing()).toEqual([1, 2, 3, 4, 5, 6])
    keys.clear()
    expect(await differing()).toEqual([1, 2, 3, 4, 5])
  })

  it('finds documents whose chunks have moved since the chunks were read', async () => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id }))
    const entry = await pair({ k: 1 }, [10, 20], documents)
    await using _ = targeted.asked
    await targeted.sharded.split('app.source', { k: 5 })
    await targeted.sharded.moveChunk('app.source', { k: 7 }, 2)
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('finds documents after the shard key was refined', async () => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id, n: _id }))
    const entry = await pair({ k: 1 }, [10, 20], documents)
    await using _ = targeted.asked
    await on('source').createIndex({ k: 1, n: 1 })
    await targeted.client.db('admin').command({ refineCollectionShardKey: 'app.source', key: { k: 1, n: 1 } })
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  describe('while the catalog still has the key _id, which the source has refined', () => {
    async function refined(): Promise<CatalogEntry> {
      const entry = await pair(
        { _id: 1 },
        [10, 20],
        [3, 13].map((_id) => ({ _id, k: 80 })),
      )
      await on('source').createIndex({ _id: 1, k: 1 })
      await targeted.client.db('admin').command({ refineCollectionShardKey: 'app.source', key: { _id: 1, k: 1 } })
      // The document with the _id 3 is not on the shard that has documents with this _id and a k below 50.
      await targeted.sharded.split('app.source', { _id: 3, k: 50 })
      await targeted.sharded.split('app.source', { _id: 4, k: 0 })
      await targeted.sharded.moveChunk('app.source', { _id: 3, k: 80 }, 1)
      return entry
    }

    it('a document that moves between shards is kept, no matter which of its events comes last', async () => {
      const entry = await refined()
      await using _ = targeted.asked
      const events = await changes(entry, async () => {
        await on('source').updateOne({ _id: 3, k: 80 }, { $set: { k: 10 } })
        await on('source').updateOne({ _id: 13, k: 80 }, { $set: { x: 1 } })
      })
      expect(events.map(({ kind, keyed }) => [kind, keyed]).sort()).toEqual([
        ['delete', true],
        ['insert', true],
        ['update', true],
      ])
      for (const ordered of [events, events.toReversed()]) {
        await on('copy').updateMany({}, { $set: { k: 80 }, $unset: { x: 1 } })
        for (const event of ordered) {
          await apply(entry, [event])
          expect(await on('copy').countDocuments()).toBe(2)
        }
        expect(await content('copy')).toEqual(await content('source'))
        await on('copy').updateMany({}, { $set: { k: 80 }, $unset: { x: 1 } })
        await apply(entry, ordered)
        expect(await content('copy')).toEqual(await content('source'))
      }
    })

    it.each<[string, (event: ChangeEvent) => boolean]>([
      ['inserted', ({ kind }) => kind === 'insert'],
      ['updated', ({ kind }) => kind === 'update'],
      ['replaced', ({ kind }) => kind === 'replace'],
      ['deleted', ({ kind }) => kind === 'delete'],
      ['changed in one batch', () => true],
    ])(
      'of two documents with the same _id, the document that is %s does not replace the other',
      async (_what, isGiven) => {
        const entry = await refined()
        await using _ = targeted.asked
        const events = await changes(entry, async () => {
          await on('source').insertOne({ _id: 3, k: 10 })
          await on('source').updateOne({ _id: 3, k: 10 }, { $set: { x: 1 } })
          await on('source').replaceOne({ _id: 3, k: 10 }, { k: 10, x: 2 })
          await on('source').deleteOne({ _id: 3, k: 10 })
          await on('source').insertOne({ _id: 3, k: 20 })
        })
        await expect(apply(entry, events.filter(isGiven))).rejects.toMatchObject({ failure: 'DuplicateDocumentId' })
        expect(await on('copy').find({ _id: 3 }).toArray()).toEqual([{ _id: 3, k: 80 }])
      },
    )
  })
})
