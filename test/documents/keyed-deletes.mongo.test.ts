import type { Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import type { ChangeEvent } from '../../src/domain/change-event.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import { type Key, sum, TargetedPair } from './targeted-pair.ts'

/** Deletes and replacements on a sharded destination contain the shard key, and remove no other document. */
describe('deleting documents of a sharded destination', () => {
  const targeted = new TargetedPair('keyed-deletes')
  const { on, content, pair, changes, apply } = targeted

  it('deletes a document that the source no longer has, and keeps one that exists again under another key', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2, 3].map((_id) => ({ _id, k: _id })),
    )
    await using _ = targeted.asked
    const events = await changes(entry, async () => {
      await on('source').updateOne({ _id: 1, k: 1 }, { $set: { x: 1 } })
      await on('source').deleteOne({ _id: 1, k: 1 })
      await on('source').deleteOne({ _id: 2, k: 2 })
      await on('source').insertOne({ _id: 2, k: 22 })
      await on('source').updateOne({ _id: 3, k: 3 }, { $set: { x: 1 } })
    })
    const [update] = events
    // Apply only the update. The source no longer has its document.
    await apply(entry, [update as ChangeEvent])
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(0)
    // Apply only the delete. The source has inserted its document again, and the event of that insert follows.
    const ofSecond = events.filter(({ idElement }) => idElement?.readInt32LE(5) === 2)
    await apply(
      entry,
      ofSecond.filter(({ kind }) => kind === 'delete'),
    )
    expect(await on('copy').find({ _id: 2 }).toArray()).toEqual([])
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    // Apply the same delete again, after the insert.
    await apply(
      entry,
      ofSecond.filter(({ kind }) => kind === 'delete'),
    )
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('leaves nothing under the former key of a document that was deleted, inserted again and given another key', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = targeted.asked
    // The keys 1 and 15 are on one shard of the source, and on two of the destination.
    await targeted.sharded.moveChunk('app.source', { k: 15 }, 0)
    const before = await changes(entry, async () => {
      await on('source').deleteOne({ _id: 1, k: 1 })
      await on('source').insertOne({ _id: 1, k: 1 })
    })
    expect(before.map(({ kind }) => kind)).toEqual(['delete', 'insert'])
    await apply(entry, before.slice(0, 1))
    expect(await on('copy').find().toArray()).toEqual([{ _id: 1, k: 1 }])
    const after = await changes(entry, () => on('source').updateOne({ _id: 1, k: 1 }, { $set: { k: 15 } }))
    expect(after.map(({ kind }) => kind)).toEqual(['update'])
    await apply(entry, [...before.slice(1), ...after])
    const rekeyed = await on('copy').find().toArray()
    const deleted = await changes(entry, () => on('source').deleteOne({ _id: 1, k: 15 }))
    await apply(entry, deleted)
    expect({ rekeyed, deleted: await on('copy').find().toArray() }).toEqual({
      rekeyed: [{ _id: 1, k: 15 }],
      deleted: [],
    })
  })

  it.each<[string, Key, unknown[], (id: number) => Document]>([
    ['a number', { k: 1 }, [10, 20], (k) => ({ k })],
    ['a hashed text', { k: 'hashed' }, [], (id) => ({ k: `value ${id}` })],
    ['of two fields', { 'a.b': 1, c: 1 }, [1, 2], (id) => ({ a: { b: id % 3 }, c: id })],
  ])('asks one shard for each deleted document, and deletes it on one shard, if the key is %s', async (...parts) => {
    const [, key, splitAt, fields] = parts
    const entry = await pair(
      key,
      splitAt,
      Array.from({ length: 30 }, (_, _id) => ({ _id, ...fields(_id) })),
    )
    await using _ = targeted.asked
    const events = await changes(entry, () => on('source').deleteMany({ _id: { $lt: 20 } }))
    expect(sum(await apply(entry, events))).toBe(20)
    expect(sum(await targeted.asked.statements('copy', 'remove'))).toBe(20)
    expect(await content('copy')).toEqual(await content('source'))
    // When the events are applied again, they find no documents.
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('sends one delete for each document whose key was changed, and for each document that no longer exists when its update is applied', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id })),
    )
    await using _ = targeted.asked
    const events = await changes(entry, async () => {
      for (let _id = 0; _id < 10; _id++) await on('source').updateOne({ _id, k: _id }, { $set: { k: _id + 15 } })
      for (let _id = 10; _id < 15; _id++) await on('source').updateOne({ _id, k: _id }, { $set: { x: 1 } })
      await on('source').deleteMany({ _id: { $gte: 10, $lt: 15 } })
    })
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    expect(sum(await targeted.asked.statements('copy', 'remove'))).toBe(15)
    expect(sum(await targeted.asked.statements('copy', 'update'))).toBe(10)
  })

  it('deletes only the one of two documents with the same _id that its event names', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = targeted.asked
    for (const name of ['source', 'copy']) await on(name).insertOne({ _id: 1, k: 25 })
    const events = await changes(entry, () => on('source').deleteOne({ _id: 1, k: 1 }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(1)
  })

  it('deletes a document that the destination has under another key than its event, and one without the field', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }, { _id: 2, k: 2 }, { _id: 3 }])
    await using _ = targeted.asked
    await on('copy').updateOne({ _id: 1, k: 1 }, { $set: { k: 25 } })
    const events = await changes(entry, () => on('source').deleteMany({}))
    await apply(entry, events)
    expect(await on('copy').find().toArray()).toEqual([])
  })

  it('keeps a document that moved after the source has refined a key that the destination still has', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2].map((_id) => ({ _id, k: 5, n: _id })),
    )
    await using _ = targeted.asked
    await on('source').createIndex({ k: 1, n: 1 })
    await targeted.client.db('admin').command({ refineCollectionShardKey: 'app.source', key: { k: 1, n: 1 } })
    await targeted.sharded.split('app.source', { k: 5, n: 50 })
    await targeted.sharded.moveChunk('app.source', { k: 5, n: 50 }, 1)
    const events = await changes(entry, async () => {
      await on('source').updateOne({ _id: 1, k: 5, n: 1 }, { $set: { n: 60 } })
      await on('source').deleteOne({ _id: 2, k: 5, n: 2 })
    })
    // Put the delete event of the move last, because the source may emit it last.
    const isDelete = ({ kind }: ChangeEvent): boolean => kind === 'delete'
    for (const event of [...events.filter((one) => !isDelete(one)), ...events.filter(isDelete)])
      await apply(entry, [event])
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('deletes a document whose event is older than a refinement of the key that the destination already has', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2].map((_id) => ({ _id, k: 5, n: _id })),
    )
    await using _ = targeted.asked
    const events = await changes(entry, () => on('source').deleteOne({ _id: 1, k: 5 }))
    for (const name of ['source', 'copy']) {
      await on(name).createIndex({ k: 1, n: 1 })
      await targeted.client.db('admin').command({ refineCollectionShardKey: `app.${name}`, key: { k: 1, n: 1 } })
    }
    entry.shardKey = requestedShardKey([{ k: 1 }, { n: 1 }])
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })
})
