import { type Db, Timestamp } from 'mongodb'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { laneHash } from '../../src/domain/lane-hash.ts'
import { toTimestamp } from '../../src/mongo/cluster.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { folded, identitiesOf } from '../apply/two-clusters.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  idElements,
  numbered,
  source,
  useTwoClusters,
} from '../definitions/reconcile-fixture.ts'
import { changesDuring } from '../mongo/clusters.ts'
import { idOfEveryType, insertRaw, nastyDocument, nested, rawDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'

useTwoClusters()

describe('reconciling documents', () => {
  it('makes unusual documents equal to the source, no matter whether they were missing, outdated, surplus or equal', async () => {
    const random = new Random('nasty')
    await createOnBoth('c')
    const ids = [...idOfEveryType.map((make) => make(random)), ...Array.from({ length: 300 }, (_, at) => `id${at}`)]
    const all: Buffer[] = []
    const before: Record<'source' | 'destination', Buffer[]> = { source: [], destination: [] }
    for (const id of ids) {
      const document = nastyDocument(random, id, [
        ['$top', 1],
        ['$set', nested([['a', 1]])],
        ['a.b', 2],
      ])
      const older = nastyDocument(random, id, [['older', true]])
      all.push(document)
      const role = random.pick(['missing', 'outdated', 'outdated', 'surplus', 'equal'] as const)
      if (role !== 'surplus') before.source.push(document)
      if (role !== 'missing') before.destination.push(role === 'equal' ? document : older)
    }
    // A few `_id`s are equal for the server but differ in their bytes. Only the first of them is inserted.
    const fill = (db: Db, documents: Buffer[]) =>
      db.command({ insert: 'c', documents: rawSequence('documents', documents), ordered: false })
    await Promise.all([fill(source(), before.source), fill(destination(), before.destination)])
    const entry = await clusters.entryOf(database, 'c')
    const identities = identitiesOf(random.shuffle(idElements(all)))
    await clusters.reconcile(entry, identities)
    await clusters.expectEqual(database)
    await clusters.reconcile(entry, identities)
    await clusters.expectEqual(database)
    expect(clusters.context.retried).toEqual([])
  })

  it('makes documents equal for any split of the events into batches and lanes, also when the events are applied again', async () => {
    const random = new Random('events')
    await createOnBoth('c')
    await insertRaw(source(), 'c', numbered(0, 20, 'before'))
    await insertRaw(destination(), 'c', numbered(0, 20, 'before'))
    const collection = source().collection<{ _id: number; v?: unknown }>('c')
    const events = await changesDuring(clusters.source, async () => {
      for (let step = 0; step < 400; step++) {
        const _id = random.int(0, 40)
        const v = { step, pad: random.word(random.int(0, 30)) }
        const kind = random.pick(['insert', 'replace', 'update', 'delete'] as const)
        if (kind === 'insert') await collection.insertOne({ _id, v }).catch((error) => expect(error.code).toBe(11000))
        else if (kind === 'replace') await collection.replaceOne({ _id }, { v }, { upsert: random.chance(0.5) })
        else if (kind === 'update') await collection.updateOne({ _id }, { $set: { v } })
        else await collection.deleteOne({ _id })
      }
    })
    const entry = await clusters.entryOf(database, 'c')
    for (const batchMax of [400, 7, 40]) {
      for (let from = 0; from < events.length; ) {
        const to = from + random.int(1, batchMax)
        // A lane keeps the order of the events of its documents. The events of other documents do not affect it.
        const lanes = [0, 1, 2].map((lane) =>
          events
            .slice(from, to)
            .filter(
              (event) =>
                laneHash(event.idElement as Buffer, event.idType, 5, event.idElement?.length ?? 0) % 3 === lane,
            ),
        )
        await Promise.all(random.shuffle(lanes).map((lane) => clusters.reconcile(entry, folded(lane))))
        from = to
      }
      await clusters.expectEqual(database)
    }
  })

  it('replaces a document that the copy has read before a change and written after it', async () => {
    await createOnBoth('c')
    const collection = source().collection<{ _id: number; v?: number }>('c')
    const events = await changesDuring(clusters.source, async () => {
      await collection.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }])
      await collection.updateOne({ _id: 2 }, { $set: { v: 1 } })
    })
    const late = [1, 2].map((id) =>
      rawDocument([
        ['_id', id],
        ['of', 'an earlier read'],
      ]),
    )
    await insertRaw(destination(), 'c', late)
    await clusters.reconcile(await clusters.entryOf(database, 'c'), folded(events))
    await clusters.expectEqual(database)
  })

  it('reads the source with majority read concern, no earlier than the events', async () => {
    await createOnBoth('c')
    const entry = await clusters.entryOf(database, 'c')
    const documents = numbered(0, 3)
    await insertRaw(source(), 'c', documents)
    const read = vi.spyOn(clusters.source, 'read')
    onTestFinished(() => read.mockRestore())
    await clusters.reconcile(entry, identitiesOf(idElements(documents)))
    const finds = read.mock.calls.map(([, command]) => command).filter((command) => 'find' in command)
    expect(finds).toHaveLength(1)
    expect(finds[0]?.['readConcern']).toEqual({ level: 'majority', afterClusterTime: toTimestamp(clusters.asOf) })
  })

  it('writes documents that a validator rejects, and keeps timestamps that the server would replace', async () => {
    await createOnBoth('c')
    const zero = new Timestamp({ t: 0, i: 0 })
    const documents = [1, 2].map((id) =>
      rawDocument([
        ['_id', id],
        ['at', zero],
        ['also', zero],
      ]),
    )
    for (const document of documents) {
      await source().command({
        insert: 'c',
        documents: rawSequence('documents', [document]),
        bypassEmptyTsReplacement: true,
      })
    }
    await insertRaw(destination(), 'c', [
      rawDocument([
        ['_id', 2],
        ['needed', 1],
      ]),
    ])
    for (const db of [source(), destination()])
      await db.command({ collMod: 'c', validator: { needed: { $exists: true } } })
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf(idElements(documents)))
    await clusters.expectEqual(database)
    const [stored] = await destination()
      .collection('c')
      .find({ _id: 1 as never }, { raw: true })
      .toArray()
    expect(Buffer.from(stored as unknown as Uint8Array)).toEqual(documents[0])
  })
})
