import { BSON, Double, Int32, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import type { Identities } from '../../src/documents/reconcile-documents.ts'
import { destinationName, folded, identitiesOf } from '../apply/two-clusters.ts'
import { changesDuring } from '../mongo/clusters.ts'
import { insertRaw, nested, rawDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'
import { clusters, createOnBoth, database, destination, idElements, source } from './reconcile-fixture.ts'

describe('an _id in several spellings', () => {
  const spellings = [new Int32(7), Long.fromInt(7), new Double(7), BSON.Decimal128.fromString('7.0')]
  const nestedSpellings = spellings.map((value) => nested([['k', value]]))
  const document = (id: unknown, v: string) =>
    rawDocument([
      ['_id', id],
      ['v', v],
    ])

  it('ends in that of the source, whichever exists on the destination and whichever are asked for', async () => {
    await createOnBoth('c')
    const entry = await clusters.entryOf(database, 'c')
    for (const ids of [spellings, nestedSpellings]) {
      for (const [at, here] of ids.entries()) {
        for (const [other, there] of [...ids, null].entries()) {
          await Promise.all([source(), destination()].map((db) => db.collection('c').deleteMany({})))
          if (at !== 3) await insertRaw(source(), 'c', [document(here, 'source')])
          if (there) await insertRaw(destination(), 'c', [document(there, 'destination')])
          const asked = ids.filter((_, index) => index === at || index === other || (at + other) % 2 === 0)
          await clusters.reconcile(entry, identitiesOf(idElements(asked.map((id) => document(id, '')))))
          await clusters.expectEqual(database)
        }
      }
    }
  })

  it('follows deletes and inserts of another spelling within one batch', async () => {
    await createOnBoth('c')
    const collection = source().collection<{ _id: number }>('c')
    const entry = await clusters.entryOf(database, 'c')
    for (const lives of [1, 2, 3, 4, 5]) {
      const events = await changesDuring(clusters.source, async () => {
        for (let life = 0; life < lives; life++) {
          await collection.deleteOne({ _id: 7 })
          await insertRaw(source(), 'c', [document(spellings[life % 4], `life ${life}`)])
        }
        if (lives === 3) await collection.deleteOne({ _id: 7 })
      })
      await clusters.reconcile(entry, folded(events))
      await clusters.expectEqual(database)
    }
  })

  describe('changed by a replacement, whose event names the old one', () => {
    const replaceBy = async (id: unknown, v: string) => {
      const statement = { q: { _id: 7 }, u: { _id: id, v } }
      const { n } = await source().command({ update: 'c', updates: [statement] })
      expect(n).toBe(1)
    }

    /** The destination takes its time for the first such command. */
    async function slowly(command: string): Promise<void> {
      const data = { failCommands: [command], appName: destinationName, blockConnection: true, blockTimeMS: 500 }
      const admin = clusters.destinationClient.db('admin')
      await admin.command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data })
    }

    async function follow(work: () => Promise<unknown>, standing: boolean): Promise<void> {
      await createOnBoth('c')
      if (standing)
        for (const db of [source(), destination()]) await insertRaw(db, 'c', [document(spellings[0], 'before')])
      const events = await changesDuring(clusters.source, work)
      await clusters.reconcile(await clusters.entryOf(database, 'c'), folded(events))
      await clusters.expectEqual(database)
    }

    it('and nothing more', async () => {
      await follow(() => replaceBy(spellings[1], 'new'), true)
    })

    it('and updated', async () => {
      await follow(async () => {
        await replaceBy(spellings[1], 'new')
        await source()
          .collection('c')
          .updateMany({}, { $set: { more: 1 } })
      }, true)
    })

    it('and updated, however long the replacement takes', async () => {
      await slowly('update')
      await follow(async () => {
        await replaceBy(spellings[1], 'new')
        await source()
          .collection('c')
          .updateMany({}, { $set: { v: 'newer' } })
      }, true)
    })

    it('and deleted: it is not brought back', async () => {
      await follow(async () => {
        await replaceBy(spellings[1], 'new')
        await source().collection('c').deleteMany({})
      }, true)
    })

    it('and back, and replaced: the last replacement counts', async () => {
      await follow(async () => {
        await replaceBy(spellings[1], 'second')
        await replaceBy(spellings[0], 'third')
        await replaceBy(spellings[0], 'fourth')
      }, true)
    })

    it('of a document just inserted, and replaced again: the last counts, however long the insert takes', async () => {
      await slowly('insert')
      await follow(async () => {
        await insertRaw(source(), 'c', [document(spellings[0], 'first')])
        await replaceBy(spellings[1], 'second')
        await replaceBy(spellings[1], 'third')
      }, false)
    })
  })
})

describe('a collection with a collation', () => {
  it('has its spelling changed where another exists', async () => {
    await createOnBoth('c', { collation: { locale: 'en', strength: 2 } })
    await insertRaw(source(), 'c', [rawDocument([['_id', 'ABC']])])
    await insertRaw(destination(), 'c', [rawDocument([['_id', 'abc']])])
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf(idElements([rawDocument([['_id', 'ABC']])])))
    await clusters.expectEqual(database)
  })

  it('takes "abc" for "ABC", but keeps the spelling of the source', async () => {
    const random = new Random('collated')
    await createOnBoth('c', { collation: { locale: 'en', strength: 2 } })
    const entry = await clusters.entryOf(database, 'c')
    const collection = source().collection<{ _id: string; v?: number }>('c')
    const spelled = (word: string) =>
      [...word].map((letter) => (random.chance(0.5) ? letter.toUpperCase() : letter)).join('')
    const batches: Identities[] = []
    for (let round = 0; round < 12; round++) {
      const events = await changesDuring(clusters.source, async () => {
        for (let step = 0; step < 25; step++) {
          const _id = spelled(random.pick(['abc', 'xyz', 'é', 'ss']))
          const kind = random.pick(['insert', 'delete', 'replace', 'update'] as const)
          const v = round * 100 + step
          if (kind === 'insert') await collection.insertOne({ _id, v }).catch((error) => expect(error.code).toBe(11000))
          else if (kind === 'delete') await collection.deleteOne({ _id })
          else if (kind === 'update') await collection.updateOne({ _id }, { $set: { v } })
          else await collection.replaceOne({ _id }, { v })
        }
      })
      const batch = folded(events)
      batches.push(batch)
      await clusters.reconcile(entry, batch)
      await clusters.expectEqual(database)
    }
    // After a crash: from an older position over again.
    for (const batch of batches.slice(-5)) await clusters.reconcile(entry, batch)
    await clusters.expectEqual(database)
  })
})

describe('a capped collection', () => {
  const capped = { capped: true, size: 1_000_000 }

  it('keeps the order of the source', async () => {
    await createOnBoth('c', capped)
    const entry = await clusters.entryOf(database, 'c')
    const random = new Random('capped')
    const collection = source().collection<{ _id: number; v: number }>('c')
    let next = 0
    for (let round = 0; round < 5; round++) {
      const events = await changesDuring(clusters.source, async () => {
        for (let step = 0; step < 60; step++) {
          const kind = random.weighted([
            [6, 'insert'],
            [1, 'delete'],
            [2, 'update'],
          ] as const)
          if (kind === 'insert') await collection.insertOne({ _id: (next++ * 7919) % 10_007, v: 0 })
          else if (kind === 'delete') await collection.deleteOne({ _id: (random.int(0, next) * 7919) % 10_007 })
          else await collection.updateOne({ _id: (random.int(0, next) * 7919) % 10_007 }, { $inc: { v: 1 } })
        }
      })
      await clusters.reconcile(entry, folded(events))
      await clusters.expectEqual(database)
    }
  })

  it('that is still being copied waits: its identities are recorded in their order, nothing is written', async () => {
    await createOnBoth('c', capped)
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const ids = [5, 3, 9, 1].map((id) => rawDocument([['_id', id]]))
    await insertRaw(source(), 'c', ids)
    await clusters.reconcile(entry, identitiesOf(idElements(ids)))
    expect(await destination().collection('c').countDocuments()).toBe(0)
    expect(entry.hasTombstones).toBe(true)
    const tombstones = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(tombstones.map(({ idElement }) => idElement)).toEqual(idElements(ids))
  })
})
