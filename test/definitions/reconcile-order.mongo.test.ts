import { BSON, Double, Int32, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import type { Identities } from '../../src/documents/reconcile-documents.ts'
import { destinationName, folded, identitiesOf } from '../apply/two-clusters.ts'
import { changesDuring } from '../mongo/clusters.ts'
import { insertRaw, nested, rawDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  idElements,
  source,
  useTwoClusters,
} from './reconcile-fixture.ts'

useTwoClusters()

describe('an _id in several spellings (equal values of different types)', () => {
  const spellings = [new Int32(7), Long.fromInt(7), new Double(7), BSON.Decimal128.fromString('7.0')]
  const nestedSpellings = spellings.map((value) => nested([['k', value]]))
  const document = (id: unknown, v: string) =>
    rawDocument([
      ['_id', id],
      ['v', v],
    ])

  it('gets the spelling of the source for any spelling on the destination and any spellings in the events', async () => {
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

  it('has the last spelling after deletes and inserts of several spellings within one batch', async () => {
    await createOnBoth('c')
    const collection = source().collection<{ _id: number }>('c')
    const entry = await clusters.entryOf(database, 'c')
    for (const rounds of [1, 2, 3, 4, 5]) {
      const events = await changesDuring(clusters.source, async () => {
        for (let round = 0; round < rounds; round++) {
          await collection.deleteOne({ _id: 7 })
          await insertRaw(source(), 'c', [document(spellings[round % 4], `round ${round}`)])
        }
        if (rounds === 3) await collection.deleteOne({ _id: 7 })
      })
      await clusters.reconcile(entry, folded(events))
      await clusters.expectEqual(database)
    }
  })

  describe('a replacement whose event has the old spelling', () => {
    const replaceBy = async (id: unknown, v: string) => {
      const statement = { q: { _id: 7 }, u: { _id: id, v } }
      const { n } = await source().command({ update: 'c', updates: [statement] })
      expect(n).toBe(1)
    }

    /** Delays the first command of this name on the destination. */
    async function delay(command: string): Promise<void> {
      const data = { failCommands: [command], appName: destinationName, blockConnection: true, blockTimeMS: 500 }
      const admin = clusters.destinationClient.db('admin')
      await admin.command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data })
    }

    async function follow(work: () => Promise<unknown>, exists: boolean): Promise<void> {
      await createOnBoth('c')
      if (exists)
        for (const db of [source(), destination()]) await insertRaw(db, 'c', [document(spellings[0], 'before')])
      const events = await changesDuring(clusters.source, work)
      await clusters.reconcile(await clusters.entryOf(database, 'c'), folded(events))
      await clusters.expectEqual(database)
    }

    it('is applied alone', async () => {
      await follow(() => replaceBy(spellings[1], 'new'), true)
    })

    it('is applied together with a later update', async () => {
      await follow(async () => {
        await replaceBy(spellings[1], 'new')
        await source()
          .collection('c')
          .updateMany({}, { $set: { more: 1 } })
      }, true)
    })

    it('is applied together with a later update when the replacement is slow on the destination', async () => {
      await delay('update')
      await follow(async () => {
        await replaceBy(spellings[1], 'new')
        await source()
          .collection('c')
          .updateMany({}, { $set: { v: 'newer' } })
      }, true)
    })

    it('is applied together with a later delete, and the document is not restored', async () => {
      await follow(async () => {
        await replaceBy(spellings[1], 'new')
        await source().collection('c').deleteMany({})
      }, true)
    })

    it('is applied together with later replacements in the old spelling, of which the last one wins', async () => {
      await follow(async () => {
        await replaceBy(spellings[1], 'second')
        await replaceBy(spellings[0], 'third')
        await replaceBy(spellings[0], 'fourth')
      }, true)
    })

    it('is applied together with an insert before it and a replacement after it when the insert is slow', async () => {
      await delay('insert')
      await follow(async () => {
        await insertRaw(source(), 'c', [document(spellings[0], 'first')])
        await replaceBy(spellings[1], 'second')
        await replaceBy(spellings[1], 'third')
      }, false)
    })
  })
})

describe('a collection with a collation', () => {
  it('gets the spelling of the source when the destination has another one', async () => {
    await createOnBoth('c', { collation: { locale: 'en', strength: 2 } })
    await insertRaw(source(), 'c', [rawDocument([['_id', 'ABC']])])
    await insertRaw(destination(), 'c', [rawDocument([['_id', 'abc']])])
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf(idElements([rawDocument([['_id', 'ABC']])])))
    await clusters.expectEqual(database)
  })

  it('treats "abc" and "ABC" as equal and keeps the spelling of the source', async () => {
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
    // After a crash, events are applied again from an older position.
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

  it('records identities in order and writes nothing while it is copied', async () => {
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
