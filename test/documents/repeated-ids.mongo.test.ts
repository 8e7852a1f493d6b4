import type { Document } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { identityKey } from '../../src/documents/identity.ts'
import type { ChangeEvent } from '../../src/domain/change-event.ts'
import { TransientReplyError } from '../../src/mongo/errors.ts'
import { explain, findDifferent } from '../../src/verify/recheck-documents.ts'
import { Random } from '../support/random.ts'
import { TargetedPair } from './targeted-pair.ts'

/**
 * A sharded collection whose shard key is not `_id` may have several documents with one `_id`, on different shards. They are
 * different documents.
 */
describe('documents with the same _id on different shards', () => {
  const targeted = new TargetedPair('repeated-ids')
  const { on, content, pair, changes, apply } = targeted
  /** One shard key value on each of the three shards, when the chunks are split at 10 and 20. */
  const places = [5, 15, 25]
  const splitAt = [10, 20]
  const threeOf = (_id: number): Document[] => places.map((k) => ({ _id, k }))

  async function expectEqual(): Promise<void> {
    expect(await content('copy')).toEqual(await content('source'))
  }

  it('an update, a replacement, a delete or a change of the shard key touches no other document', async () => {
    const works: ((_id: number) => Promise<unknown>)[] = [
      (_id) => on('source').updateOne({ _id, k: 5 }, { $set: { x: 1 } }),
      (_id) => on('source').replaceOne({ _id, k: 5 }, { k: 5, x: 1 }),
      (_id) => on('source').deleteOne({ _id, k: 15 }),
      (_id) => on('source').updateOne({ _id, k: 5 }, { $set: { k: 6 } }),
      (_id) => on('source').deleteMany({ _id }),
      (_id) => on('source').updateMany({ _id }, { $set: { x: 1 } }),
      // A replacement must not have such names.
      (_id) =>
        on('source').updateMany({ _id }, [
          { $replaceWith: { $setField: { field: { $literal: '$a' }, input: '$$ROOT', value: 1 } } },
        ]),
    ]
    const entry = await pair(
      { k: 1 },
      splitAt,
      works.flatMap((_, _id) => threeOf(_id)),
    )
    await using _ = targeted.asked
    for (const [_id, work] of works.entries()) {
      const events = await changes(entry, () => work(_id))
      expect(events.length).toBeGreaterThan(0)
      await apply(entry, events)
      await expectEqual()
    }
  })

  it('inserts a second and a third one, and moves one of them to another shard and back', async () => {
    const entry = await pair({ k: 1 }, splitAt, [{ _id: 1, k: 5 }])
    await using _ = targeted.asked
    const events = await changes(entry, async () => {
      await on('source').insertOne({ _id: 1, k: 15 })
      await on('source').updateOne({ _id: 1, k: 15 }, { $set: { k: 25 } })
      await on('source').insertOne({ _id: 1, k: 16 })
      await on('source').deleteOne({ _id: 1, k: 5 })
      await on('source').updateOne({ _id: 1, k: 25 }, { $set: { k: 7 } })
    })
    for (const event of events) await apply(entry, [event])
    await expectEqual()
    await apply(entry, events)
    await expectEqual()
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(2)
  })

  it('inserts a document that the destination lacks although no event names it, and removes one that the source lacks', async () => {
    const entry = await pair({ k: 1 }, splitAt, threeOf(1))
    await using _ = targeted.asked
    await on('copy').deleteOne({ _id: 1, k: 25 })
    await on('source').deleteOne({ _id: 1, k: 15 })
    const events = await changes(entry, () => on('source').updateOne({ _id: 1, k: 5 }, { $set: { x: 1 } }))
    await apply(entry, events)
    await expectEqual()
  })

  it('writes documents whose shard key values no filter can express', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 'a'],
      [
        { _id: 1, k: 5 },
        { _id: 1, k: /^x/ },
      ],
    )
    await using _ = targeted.asked
    const events = await changes(entry, () => on('source').updateMany({ _id: 1 }, { $set: { x: 1 } }))
    await apply(entry, events)
    await expectEqual()
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(2)
  })

  it('keeps the document that no event names, whichever command fails or is interrupted', async () => {
    // The documents of these _ids do not fit one reply of the server.
    const big = 'x'.repeat(3 * 1024 * 1024)
    const documents = [1, 2, 3].flatMap((_id) => [5, 25].map((k) => ({ _id, k, big })))
    const entry = await pair({ k: 1 }, splitAt, documents)
    await using _ = targeted.asked
    const events = await changes(entry, async () => {
      for (const _id of [1, 2, 3]) await on('source').updateOne({ _id, k: 5 }, { $set: { x: 1 } })
    })
    const { cluster } = targeted
    for (let failing = 0; failing < 3; failing++) {
      for (const isCrash of [false, true]) {
        await on('copy').updateMany({ k: 5 }, { $unset: { x: 1 } })
        let writes = 0
        const write = cluster.write.bind(cluster)
        const spy = vi.spyOn(cluster, 'write').mockImplementation(async (...call) => {
          if (writes++ === failing)
            throw isCrash ? new Error('interrupted') : new TransientReplyError('the command failed')
          return await write(...call)
        })
        const applied = apply(entry, events, undefined, !isCrash)
        await (isCrash ? expect(applied).rejects.toThrow() : applied)
        spy.mockRestore()
        expect(writes).toBeGreaterThan(failing)
        if (isCrash) await apply(entry, events)
        await expectEqual()
      }
    }
  })

  it('a second document that the destination refuses does not remove the first one', async () => {
    const entry = await pair({ k: 1 }, splitAt, [{ _id: 1, k: 5 }])
    await using _ = targeted.asked
    await on('copy').createIndex({ at: '2dsphere' })
    const insert = await changes(entry, () => on('source').insertOne({ _id: 1, k: 25, at: 'no place' }))
    await expect(apply(entry, insert)).rejects.toMatchObject({ failure: 'DocumentRefused' })
    expect(await on('copy').find().toArray()).toEqual([{ _id: 1, k: 5 }])
  })

  it('fails by name if the source has refined the shard key and two documents differ only in the new field', async () => {
    const entry = await pair({ k: 1 }, splitAt, [{ _id: 1, k: 5, n: 1 }])
    await using _ = targeted.asked
    await on('source').createIndex({ k: 1, n: 1 })
    await targeted.client.db('admin').command({ refineCollectionShardKey: 'app.source', key: { k: 1, n: 1 } })
    await targeted.sharded.split('app.source', { k: 5, n: 10 })
    await targeted.sharded.moveChunk('app.source', { k: 5, n: 10 }, 1)
    const insert = await changes(entry, () => on('source').insertOne({ _id: 1, k: 5, n: 20 }))
    await expect(apply(entry, insert)).rejects.toMatchObject({
      failure: 'DuplicateDocumentId',
      message: expect.stringContaining('does not distinguish them'),
    })
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(1)
  })

  it('a random sequence of inserts, updates, moves and deletes, divided into random batches, ends equal', async () => {
    const random = new Random(process.env['TANDEM_SEED'] ?? 'repeated')
    const entry = await pair({ k: 1 }, splitAt, [...threeOf(0), ...threeOf(1), { _id: 2, k: 5 }, { _id: 3, k: 15 }])
    await using _ = targeted.asked
    for (let round = 0; round < 2; round++) {
      const events = await changes(entry, () => change(random, 25))
      const batches: ChangeEvent[][] = []
      for (let from = 0; from < events.length; ) {
        const size = random.int(1, 6)
        batches.push(events.slice(from, from + size))
        from += size
      }
      const crashAt = random.int(0, batches.length)
      for (const batch of batches.slice(0, crashAt)) await apply(entry, batch)
      // The events after the stored position are applied again after a crash.
      for (const batch of batches.slice(random.int(0, crashAt))) await apply(entry, batch)
      await expectEqual()
    }
  })

  /** Changes documents of the source. Skips a change that the `_id` index of a shard refuses. */
  async function change(random: Random, steps: number): Promise<void> {
    const source = on('source')
    for (let step = 0; step < steps; step++) {
      const _id = random.int(0, 3)
      const [k, to] = [0, 1].map(() => random.pick(places) + random.int(0, 2)) as [number, number]
      const existing = await source.find({ _id }).toArray()
      const one = existing.length > 0 ? random.pick(existing) : { _id, k }
      const works: (() => Promise<unknown>)[] = [
        () => source.insertOne({ _id, k, n: step }),
        () => source.insertOne({ _id, k, n: step }),
        () => source.updateOne({ _id, k: one['k'] }, { $set: { n: step } }),
        () => source.updateOne({ _id, k: one['k'] }, { $set: { k: to, n: step } }),
        () => source.replaceOne({ _id, k: one['k'] }, { k: one['k'], n: step }),
        () => source.deleteOne({ _id, k: one['k'] }),
      ]
      await random
        .pick(works)()
        .catch((error) => {
          if ((error as { code?: number }).code !== 11_000) throw error
        })
    }
  }

  it('fails by name, and removes nothing of the source, if the destination places two of them on one shard', async () => {
    const entry = await pair({ k: 1 }, splitAt, [{ _id: 1, k: 5 }])
    await using _ = targeted.asked
    await targeted.sharded.moveChunk('app.copy', { k: 25 }, 0)
    const insert = await changes(entry, () => on('source').insertOne({ _id: 1, k: 25 }))
    await expect(apply(entry, insert)).rejects.toMatchObject({
      failure: 'DuplicateDocumentId',
      message: expect.stringContaining('places two of them on one shard'),
    })
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(1)
    await on('source').deleteOne({ _id: 1, k: 5 })
    await apply(entry, insert)
    await expectEqual()
  })

  it('are equal if both clusters have the same of them, and every difference is found and explained', async () => {
    const entry = await pair({ k: 1 }, splitAt, [1, 2, 3, 4, 5].flatMap(threeOf))
    await using _ = targeted.asked
    const clusters = { source: targeted.cluster, destination: targeted.cluster }
    const events = await changes(entry, () => on('source').updateMany({ k: 5 }, { $set: { x: 1 } }))
    await apply(entry, events)
    const idElements = events.map(({ idElement }) => idElement as Buffer)
    const differing = async (): Promise<string[]> => {
      const found = await findDifferent(clusters, entry, idElements, targeted.cluster.latest)
      return found.map(identityKey).sort()
    }
    const idElementOf = (id: number): Buffer => idElements.find((one) => one.readInt32LE(5) === id) as Buffer
    expect(idElements).toHaveLength(5)
    expect(await differing()).toEqual([])
    await on('copy').updateOne({ _id: 1, k: 25 }, { $set: { x: 2 } })
    await on('copy').deleteOne({ _id: 2, k: 15 })
    await on('source').deleteOne({ _id: 3, k: 15 })
    await on('source').deleteMany({ _id: 4 })
    expect(await differing()).toEqual([1, 2, 3, 4].map((id) => identityKey(idElementOf(id))).sort())
    const explained = await Promise.all([1, 2, 3, 4, 5].map((id) => explain(clusters, entry, idElementOf(id))))
    expect(explained.map((one) => one && [one.kind, one.field])).toEqual([
      ['content', 'x'],
      ['missing', undefined],
      ['extra', undefined],
      ['extra', undefined],
      null,
    ])
  })
})
