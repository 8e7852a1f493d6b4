import { BSON, type Db, Double, Int32, Long, Timestamp } from 'mongodb'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { idElementOf } from '../../src/apply/identity.ts'
import type { Identities } from '../../src/apply/reconcile-documents.ts'
import { FatalError } from '../../src/domain/errors.ts'
import { laneHash } from '../../src/domain/lane-hash.ts'
import { toTimestamp } from '../../src/mongo/cluster.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { changesDuring } from '../mongo/clusters.ts'
import { idOfEveryType, insertRaw, nastyDocument, nested, rawDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'
import { destinationName, folded, identitiesOf, TwoClusters } from './two-clusters.ts'

let clusters: TwoClusters
let database: string
let count = 0

beforeAll(async () => {
  clusters = await TwoClusters.start()
})

beforeEach(() => {
  database = `app${count++}`
})

afterEach(async () => {
  await clusters.destinationClient.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' })
  clusters.context.retried.length = 0
})

afterAll(async () => {
  await clusters.stop()
})

const source = () => clusters.sourceClient.db(database)
const destination = () => clusters.destinationClient.db(database)

async function createOnBoth(name: string, options = {}): Promise<void> {
  await Promise.all([source(), destination()].map((db) => db.createCollection(name, options)))
}

const idElements = (documents: Buffer[]) => documents.map((document) => Buffer.from(idElementOf(document)))
const numbered = (from: number, to: number, text = 'x') =>
  Array.from({ length: to - from }, (_, at) =>
    rawDocument([
      ['_id', new Int32(from + at)],
      ['text', text],
    ]),
  )

describe('whatever stands on the destination', () => {
  it('nasty documents end as the source has them: missing, outdated, surplus or equal before', async () => {
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
    // A few _ids are one value in two spellings, of which the first stays.
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

  it('events and reads together give the same, in any division into batches, over again too', async () => {
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
        // A lane holds its documents' events in their order; the others' do not matter to it.
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

  it('an insert replaces what the copy read earlier and wrote late', async () => {
    await createOnBoth('c')
    const collection = source().collection<{ _id: number; v?: number }>('c')
    const events = await changesDuring(clusters.source, async () => {
      await collection.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }])
      await collection.updateOne({ _id: 2 }, { $set: { v: 1 } })
    })
    const late = [1, 2].map((id) =>
      rawDocument([
        ['_id', id],
        ['of', 'an earlier life'],
      ]),
    )
    await insertRaw(destination(), 'c', late)
    await clusters.reconcile(await clusters.entryOf(database, 'c'), folded(events))
    await clusters.expectEqual(database)
  })

  it('the source is read at its majority, no earlier than the events', async () => {
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

  it('validators and the server’s clock do not touch what the source has', async () => {
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

describe('an _id in several spellings', () => {
  const spellings = [new Int32(7), Long.fromInt(7), new Double(7), BSON.Decimal128.fromString('7.0')]
  const nestedSpellings = spellings.map((value) => nested([['k', value]]))
  const document = (id: unknown, v: string) =>
    rawDocument([
      ['_id', id],
      ['v', v],
    ])

  it('ends in that of the source, whichever stands on the destination and whichever are asked for', async () => {
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
  it('has its spelling changed where another stands', async () => {
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
    const tombstones = await clusters.metadata.readTombstones(entry.uuid, -1, 10)
    expect(tombstones.map(({ idElement }) => idElement)).toEqual(idElements(ids))
  })
})

describe('a document that is gone on the source', () => {
  it('is deleted; while its collection is copied it is recorded first, so that a late insert is undone', async () => {
    await createOnBoth('c')
    const documents = numbered(0, 5)
    await insertRaw(destination(), 'c', documents)
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const fail = { failCommands: ['delete'], appName: destinationName, errorCode: 91 }
    const admin = clusters.destinationClient.db('admin')
    await admin.command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data: fail })
    const reconciling = clusters.reconcile(entry, identitiesOf(idElements(documents)))
    while (clusters.context.retried.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    // The delete has failed so far: had the process died here, the record would be there.
    expect(await destination().collection('c').countDocuments()).toBe(5)
    const tombstones = await clusters.metadata.readTombstones(entry.uuid, -1, 10)
    expect(tombstones.map(({ idElement }) => idElement)).toEqual(idElements(documents))
    await admin.command({ configureFailPoint: 'failCommand', mode: 'off' })
    await reconciling
    expect(await destination().collection('c').countDocuments()).toBe(0)
    expect(entry.hasTombstones).toBe(true)
    // Recorded once, whatever was retried.
    expect(await clusters.metadata.readTombstones(entry.uuid, -1, 10)).toHaveLength(5)
  })

  it('is not recorded once its collection is copied', async () => {
    await createOnBoth('c')
    const documents = numbered(0, 5)
    await insertRaw(destination(), 'c', documents)
    const entry = await clusters.entryOf(database, 'c')
    await clusters.reconcile(entry, identitiesOf(idElements(documents)))
    expect(await destination().collection('c').countDocuments()).toBe(0)
    expect(await clusters.metadata.readTombstones(entry.uuid, -1, 10)).toEqual([])
  })
})

describe('a collection that moves while it is read', () => {
  /** Runs `work` right after the first answer to a find. */
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

  it('is read under its new name; nothing of it is taken for deleted', async () => {
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

  it('is read under its new name when it moved before, even with another collection under the old one', async () => {
    await createOnBoth('c')
    await insertRaw(source(), 'c', numbered(0, 5))
    const entry = await clusters.entryOf(database, 'c')
    await source().collection('c').rename('d')
    await insertRaw(source(), 'c', numbered(0, 3, 'another'))
    await clusters.reconcile(entry, identitiesOf(idElements(numbered(0, 10))))
    expect(entry.sourceName).toBe('d')
    expect(await destination().collection('c').countDocuments({ text: 'x' })).toBe(5)
  })

  it('is left as it is when it was dropped: the event of that follows', async () => {
    await createOnBoth('c')
    await insertRaw(destination(), 'c', numbered(0, 5))
    const entry = await clusters.entryOf(database, 'c')
    await source().collection('c').drop()
    await clusters.reconcile(entry, identitiesOf(idElements(numbered(0, 5))))
    expect(await destination().collection('c').countDocuments()).toBe(5)
  })
})

describe('an index on the destination that refuses a document', () => {
  it('is dropped ahead of its event when the source has it no longer', async () => {
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

  it('and that the source has as well is said by name', async () => {
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
    expect(error.message).not.toContain('nowhere')
  })
})

describe('size', () => {
  it('three documents of 15.9 MB in one batch, new and standing', async () => {
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

  it('documents carried by events, more than fit into one message', async () => {
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

  it('a hundred thousand small identities in one batch', async () => {
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

  it('long _ids, more than fit into one command', async () => {
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
