import { type Binary, BSON, Int32, Long } from 'mongodb'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { idElementOf, idOf } from '../../src/documents/identity.ts'
import { openNatural, openRange, readByIds, readMaxKey } from '../../src/documents/read-documents.ts'
import type { TypedValue } from '../../src/domain/raw-bson.ts'
import { type CollectionToRead, renamedTo } from '../../src/mongo/collection-name.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import type { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { sampleIds, sizeOf } from '../../src/mongo/sample.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { oneSet } from '../mongo/one-set.ts'
import { idOfEveryType, nested, rawDocument } from '../support/bson-values.ts'
import { failPoint } from '../support/fail-point.ts'
import { Random } from '../support/random.ts'

const one = oneSet()

/** Creates a collection with these documents. If several documents have equal `_id`s, the collection keeps the first. */
async function fill(name: string, documents: Buffer[], options = {}): Promise<CollectionToRead> {
  await one.client.db('app').createCollection(name, options)
  await appendOplogNote(one.cluster, 'test')
  for (let from = 0; from < documents.length; from += 1_000) {
    const part = documents.slice(from, from + 1_000)
    await one.cluster.write('app', { insert: name, documents: rawSequence('documents', part), ordered: false })
  }
  const [info] = await one.client.db('app').listCollections({ name }).toArray()
  return { database: 'app', name, uuid: fromUuid((info as unknown as { info: { uuid: Binary } }).info.uuid) }
}

async function all(cursor: RawCursor): Promise<Buffer[]> {
  const documents: Buffer[] = []
  for (let batch = await cursor.next(); batch; batch = await cursor.next()) documents.push(...batch.documents)
  await cursor.close()
  return documents
}

/**
 * Reads a range as the copy does. A range without an upper bound also needs `readMaxKey`, because most ranges with a lower bound
 * end before the `_id` MaxKey on the server.
 */
async function range(collection: CollectionToRead, from: TypedValue | null, to: TypedValue | null): Promise<Buffer[]> {
  const read = await all(await openRange(one.cluster, collection, { from, to }, one.cluster.latest, 7))
  if (to) return read
  for await (const documents of readMaxKey(one.cluster, collection, one.cluster.latest)) {
    for (const document of documents) if (!read.at(-1)?.equals(document)) read.push(document)
  }
  return read
}

const ofEveryType = (random: Random) => [
  ...Array.from({ length: 4 }, () => idOfEveryType.map((make) => make(random))).flat(),
  ...Array.from({ length: 60 }, () =>
    random.pick([random.int(-50, 50), random.word(3), Long.fromInt(random.int(0, 99))]),
  ),
  ...['a', 'A', 'b', 'B', 'é', 'E'].map((letter) => nested([['k', letter]])),
]

describe('a read of documents by their _ids', () => {
  const ids = Array.from({ length: 100 }, (_, id) => new Int32(id))

  it('halves the number of _ids per command after each timeout, down to one, and increases it again later', async () => {
    const collection = await fill(
      'cold',
      ids.map((id) => rawDocument([['_id', id]])),
    )
    const sent = vi.spyOn(one.cluster, 'read')
    onTestFinished(() => sent.mockRestore())
    const typed = ids.map((id) => idOf(idElementOf(rawDocument([['_id', id]]))))
    const read = async (): Promise<number[]> => {
      sent.mockClear()
      let found = 0
      for await (const documents of readByIds(one.cluster, collection, typed, one.cluster.latest)) {
        found += documents.length
      }
      expect(found).toBe(100)
      return sent.mock.calls.flatMap(([, command]) => ('find' in command ? [command['filter']._id.$in.length] : []))
    }
    const data = { failCommands: ['find'], errorCode: 50, appName: 'tandem-test' }
    await using _ = await failPoint(one.client, 'failCommand', data, { times: 3 })
    for (let attempt = 0; attempt < 3; attempt++) await expect(read()).rejects.toMatchObject({ code: 50 })
    expect(await read()).toEqual([...Array(8).fill(12), 4])
    expect(await read()).toEqual([...Array(7).fill(12), 16])
    await using failing = await failPoint(one.client, 'failCommand', data)
    for (let attempt = 0; attempt < 6; attempt++) await expect(read()).rejects.toMatchObject({ code: 50 })
    await failing.release()
    expect((await read())[0]).toBe(1)
  })
})

describe('ranges of _ids', () => {
  it.each([
    ['plain', {}],
    ['collated', { collation: { locale: 'en', strength: 2 } }],
    ['clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
  ])(
    'of a %s collection together contain every document once, for _ids of every type and any boundaries',
    async (name, options) => {
      const random = new Random(name)
      const collection = await fill(
        name,
        ofEveryType(random).map((id) => rawDocument([['_id', id]])),
        options,
      )
      const whole = await range(collection, null, null)
      expect(whole.length).toBeGreaterThan(60)
      const ids = whole.map((document) => idOf(idElementOf(document)))
      const maxKeyAt = ids.findIndex((id) => id[0] === 0x7f)
      for (let round = 0; round < 12; round++) {
        const places = new Set(Array.from({ length: random.int(0, 6) }, () => random.int(1, ids.length - 1)))
        places.delete(maxKeyAt)
        const bounds = [null, ...[...places].sort((one, other) => one - other).map((at) => ids[at] as TypedValue), null]
        const parts: Buffer[] = []
        for (let at = 0; at + 1 < bounds.length; at++)
          parts.push(...(await range(collection, bounds[at] ?? null, bounds[at + 1] ?? null)))
        expect(parts).toEqual(whole)
      }
    },
  )

  it('can be continued after the _id at which reading ended, for _ids of every type', async () => {
    const random = new Random('left')
    const collection = await fill(
      'left',
      ofEveryType(random).map((id) => rawDocument([['_id', id]])),
    )
    const whole = await range(collection, null, null)
    // The last document has the `_id` MaxKey, and no document can follow it.
    for (const [at, document] of whole.slice(0, -1).entries()) {
      const from = idOf(idElementOf(document))
      expect(await range(collection, from, null), from.toString('hex')).toEqual(whole.slice(at))
    }
  })

  it('have sampled boundaries, which are in the order of the index', async () => {
    const random = new Random('sample')
    const collection = await fill(
      'sample',
      ofEveryType(random).map((id) => rawDocument([['_id', id]])),
    )
    const ids = (await range(collection, null, null)).map((document) => idOf(idElementOf(document)).toString('hex'))
    const sampled = (await sampleIds(one.cluster, collection, 30)).map((id) => ids.indexOf(id.toString('hex')))
    expect(sampled).toHaveLength(30)
    expect(sampled).not.toContain(-1)
    expect(sampled).toEqual([...sampled].sort((one, other) => one - other))
    expect(await sizeOf(one.cluster, collection)).toMatchObject({ documents: ids.length })
  })
})

describe('a read in natural order', () => {
  it('returns the documents of a capped collection in the order of their inserts', async () => {
    const documents = [5, 3, 9, 1, 7].map((id) => rawDocument([['_id', id]]))
    const collection = await fill('capped', documents, { capped: true, size: 10_000 })
    expect(await all(await openNatural(one.cluster, collection, one.cluster.latest, 2))).toEqual(documents)
  })
})

describe('a read of a collection that was renamed or dropped', () => {
  const read = async (collection: CollectionToRead) => {
    try {
      for await (const _ of readByIds(one.cluster, collection, [Buffer.from([0x0a])], one.cluster.latest));
      return 'found'
    } catch (error) {
      return renamedTo(error)
    }
  }

  it('returns the new name, or null when the database no longer has the collection', async () => {
    const moved = await fill('moved', [])
    const dropped = await fill('dropped', [])
    const elsewhere = await fill('elsewhere', [])
    expect(await read(moved)).toBe('found')
    await one.client.db('app').collection('moved').rename('here')
    await one.client.db('app').collection('dropped').drop()
    await one.client.db('admin').command({ renameCollection: 'app.elsewhere', to: 'other.elsewhere' })
    expect(await Promise.all([moved, dropped, elsewhere].map(read))).toEqual(['here', null, null])
    expect(await read({ ...moved, name: 'never.there' })).toBe('here')
    expect(renamedTo(new Error('another'))).toBeUndefined()
    expect(renamedTo(new BSON.BSONError('another'))).toBeUndefined()
  })
})
