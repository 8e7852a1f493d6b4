import { createRequire } from 'node:module'
import fc from 'fast-check'
import { BSON, type Document, Int32, Long, ObjectId, Timestamp } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { openRange, readByIds } from '../../src/documents/read-documents.ts'
import { deleteStatement, upsertStatement } from '../../src/documents/statements.ts'
import { type TypedValue, typedDocument } from '../../src/domain/raw-bson.ts'
import { isTransient } from '../../src/mongo/errors.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { CheckedText, RawValue, rawSequence } from '../../src/mongo/raw-values.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { anyName, anyValue, documentOf, lengthPrefixed, oneOfEveryType, typed } from '../domain/bson-arbitraries.ts'
import { array, idOfEveryType, nastyDocument, nested, rawDocument, undefinedValue } from '../support/bson-values.ts'
import { elements } from '../support/compare-raw.ts'
import { Random } from '../support/random.ts'
import { startProxy } from '../support/tcp-proxy.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * src/mongo/raw-values.ts relies on the internals of one exact version of the driver. After an upgrade of the driver, review
 * that file, check that the other tests of this file pass, and then change the version below.
 */
const driverVersion = '7.8.0'

const one = oneSet()

async function stored(collection: string): Promise<Buffer[]> {
  const cursor = one.client.db('app').collection(collection).find({}, { raw: true }).sort({ _id: 1 })
  return (await cursor.toArray()).map((document) => Buffer.from(document as unknown as Uint8Array))
}

async function insert(collection: string, documents: Buffer[], from = 0, to = documents.length): Promise<void> {
  const reply = await one.cluster.write('app', {
    insert: collection,
    documents: rawSequence('documents', documents, from, to),
    ordered: false,
  })
  expect(reply['writeErrors']).toBeUndefined()
}

async function collectionOf(name: string) {
  const [info] = await one.client.db('app').listCollections({ name }).toArray()
  return { database: 'app', name, uuid: fromUuid((info as unknown as { info: { uuid: BSON.UUID } }).info.uuid) }
}

const large = (id: number, bytes: number): Buffer =>
  Buffer.from(BSON.serialize({ _id: id, filling: Buffer.alloc(bytes, id) }))

const withId = (id: number, value: TypedValue) =>
  documentOf([
    { name: '_id', value: Buffer.from([0x10, id & 0xff, id >> 8, 0, 0]) },
    { name: 'v', value: typedDocument(documentOf([{ name: 'w', value }])) },
  ])

describe('the driver', () => {
  it('has the version whose internals were reviewed, and is pinned to it', () => {
    const require = createRequire(import.meta.url)
    expect(require('mongodb/package.json').version).toBe(driverVersion)
    expect(require('../../package.json').dependencies.mongodb).toBe(driverVersion)
  })
})

const maxKey = Buffer.from([0x7f])

describe('a RawValue', () => {
  it('is written with its own bytes and type, under any field name and next to any other fields', () => {
    const commandName = anyName.filter((name) => !name.includes('\x07'))
    const fields = fc.uniqueArray(fc.record({ name: commandName, value: anyValue }), {
      selector: ({ name }) => name,
      maxLength: 6,
    })
    fc.assert(
      fc.property(fields, (fields) => {
        // A Map, because an object would put numeric names first.
        const written = BSON.serialize(new Map(fields.map(({ name, value }) => [name, new RawValue(value)])))
        expect(Buffer.from(written)).toEqual(documentOf(fields))
      }),
      { numRuns: 300 },
    )
  })

  it('is written with its own bytes and type in arrays, for indexes of any number of digits', () => {
    const values = fc.array(anyValue, { minLength: 1, maxLength: 4 })
    fc.assert(
      fc.property(values, (values) => {
        const many = Array.from({ length: 1_100 }, (_, at) => values[at % values.length] as TypedValue)
        const written = BSON.serialize({ _id: { $in: many.map((value) => new RawValue(value)) } })
        const list = documentOf(many.map((value, at) => ({ name: String(at), value })))
        const filter = documentOf([{ name: '$in', value: Buffer.concat([Buffer.from([0x04]), list]) }])
        const expected = documentOf([{ name: '_id', value: typedDocument(filter) }])
        expect(Buffer.compare(written, expected)).toBe(0)
      }),
      { numRuns: 5 },
    )
  })

  it('of every type reaches the server byte for byte inside a command', async () => {
    const samples = fc.sample(oneOfEveryType, { numRuns: 5, seed: 11 }).flat()
    const documents = samples.map((value, id) => ({ _id: id, v: { w: new RawValue(value) } }))
    for (let from = 0; from < documents.length; from += 20) {
      const reply = await one.cluster.write('app', { insert: 'command', documents: documents.slice(from, from + 20) })
      expect(reply['writeErrors']).toBeUndefined()
    }
    expect(await stored('command')).toEqual(samples.map((value, id) => withId(id, value)))
    expect(new Set(samples.map((value) => value[0])).size).toBe(21)
  })

  it('of every type that an _id may have finds its document by $in, and bounds a range', async () => {
    const random = new Random('raw values')
    const made = [
      ...idOfEveryType.map((make) => make(random)),
      nested([
        ['10', 1],
        ['2', Long.fromInt(5)],
      ]),
    ]
    const unique = new Map<string, Buffer>()
    for (const id of made) {
      const document = rawDocument([['_id', id]])
      const { writeErrors } = await one.cluster.write('app', {
        insert: 'ids',
        documents: rawSequence('documents', [document]),
      })
      if (!writeErrors) unique.set(document.toString('hex'), document)
    }
    expect(unique.size).toBeGreaterThan(25)
    const collection = await collectionOf('ids')
    const ids = (await stored('ids')).map((document) => [...elements(document)][0]?.value as Buffer)
    expect(ids.length).toBe(unique.size)

    const all: Buffer[] = []
    for await (const batch of readByIds(one.cluster, collection, ids, one.cluster.latest)) all.push(...batch)
    expect(all.map((document) => document.toString('hex')).sort()).toEqual([...unique.keys()].sort())
    expect(ids.pop()).toEqual(maxKey)
    for (const [at, id] of ids.entries()) {
      for await (const batch of readByIds(one.cluster, collection, [id], one.cluster.latest)) {
        expect(batch).toEqual([documentOf([{ name: '_id', value: id }])])
      }
      const bounds = { from: id, to: ids[at + 1] ?? maxKey }
      const cursor = await openRange(one.cluster, collection, bounds, one.cluster.latest, 10)
      expect((await cursor.next())?.documents).toEqual([documentOf([{ name: '_id', value: id }])])
      await cursor.close()
    }
  })
})

describe('a CheckedText', () => {
  it('is a string for the server, and is checked only when the message is written', async () => {
    let checks = 0
    const comment = new CheckedText('what for', () => {
      checks += 1
    })
    expect(checks).toBe(0)
    await one.client.db('admin').command({ ping: 1, comment })
    expect(checks).toBe(1)
  })

  it('with a check that throws prevents the command from being sent, and leaves the connection usable', async () => {
    const db = one.client.db('checked')
    const comment = new CheckedText('too late', () => {
      throw new Error('the lease is lost')
    })
    const documents = [{ _id: 1 }]
    await expect(db.command({ insert: 'things', documents, comment })).rejects.toThrow('the lease is lost')
    expect(await db.collection('things').countDocuments()).toBe(0)
    await db.command({ insert: 'things', documents })
    expect(await db.collection('things').countDocuments()).toBe(1)
  })
})

describe('a raw sequence', () => {
  it('inserts documents unchanged, with their field order, repeated names, and types that no driver writes', async () => {
    const odd = rawDocument([
      ['_id', 0],
      ['b', 1],
      ['10', 2],
      ['2', undefinedValue],
      ['b', new Int32(3)],
      ['symbol', new BSON.BSONSymbol('s')],
      [
        'nested',
        nested([
          ['10', 1],
          ['2', array([undefinedValue])],
          ['10', nested([['$set', 1]])],
        ]),
      ],
      ['$top', 1],
      ['__proto__', nested([['x', 1]])],
      ['zero', nested([['t', new Timestamp({ t: 0, i: 0 })]])],
    ])
    const random = new Random('sequence')
    const fields = [
      ...elements(odd),
      { name: '', value: typed(0x0c, lengthPrefixed(Buffer.from('a.b')), Buffer.alloc(12, 7)) },
    ]
    const documents = [documentOf(fields), ...Array.from({ length: 400 }, (_, at) => nastyDocument(random, at + 1))]
    await insert('sequence', documents)
    expect(await stored('sequence')).toEqual(documents)
  })

  it('of large documents arrives byte for byte, although it has more pieces than one system call accepts', async () => {
    const random = new Random('pieces')
    const documents = Array.from({ length: 1_500 }, (_, id) => large(id, random.int(3_000, 12_000)))
    await insert('pieces', documents)
    expect(Buffer.concat(await stored('pieces')).equals(Buffer.concat(documents))).toBe(true)
  })

  it.for(['is closed', 'forwards nothing until the command times out'])(
    'of large documents fails with a transient error when the connection %s',
    async (what) => {
      await using proxy = await startProxy('127.0.0.1', Number(new URL(one.set.uris[0] as string).port))
      const cluster = testCluster(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
      try {
        await cluster.read('admin', { ping: 1 })
        proxy.blackhole()
        const documents = Array.from({ length: 1_000 }, (_, id) => large(id, 12_000))
        const command = { insert: 'cut', documents: rawSequence('documents', documents), ordered: false }
        const sent = cluster.write('app', command, { timeoutMS: what === 'is closed' ? 30_000 : 500, unfenced: true })
        const failed = sent.then(
          () => null,
          (error) => error,
        )
        if (what === 'is closed') await proxy.cut()
        expect(isTransient(await failed)).toBe(true)
        await proxy.heal()
        await vi.waitFor(() => cluster.read('admin', { ping: 1 }), { timeout: 20_000, interval: 100 })
      } finally {
        await cluster.close()
      }
    },
  )

  it('sends only the given range of its documents', async () => {
    const documents = Array.from({ length: 10 }, (_, at) => rawDocument([['_id', at]]))
    await insert('part', documents, 3, 7)
    expect(await stored('part')).toEqual(documents.slice(3, 7))
  })

  it('sends replacements and deletes that contain the bytes of an _id', async () => {
    const random = new Random('statements')
    const ids = [1, 'a', new ObjectId(random.bytes(12)), nested([['x', Long.fromInt(1)]]), new BSON.MaxKey()]
    const documents = ids.map((id, at) =>
      rawDocument([
        ['_id', id],
        ['old', at],
      ]),
    )
    await insert('statements', documents.slice(1))
    const idElements = documents.map((document) => document.subarray(4, document.indexOf(Buffer.from('\x10old\0'))))
    const newer = ids.map((id, at) => withoutDollarNames(nastyDocument(random, id, [['n', at]])))
    const updates = newer.map((document, at) => upsertStatement(idElements[at] as Buffer, document))
    const reply = await one.cluster.write('app', { update: 'statements', updates: rawSequence('updates', updates) })
    expect([reply['writeErrors'], reply['n'], (reply['upserted'] as Document[]).length]).toEqual([undefined, 5, 1])
    expect(new Set((await stored('statements')).map(hex))).toEqual(new Set(newer.map(hex)))

    const deletes = idElements.slice(0, 3).map((idElement) => deleteStatement(idElement))
    await one.cluster.write('app', { delete: 'statements', deletes: rawSequence('deletes', deletes) })
    expect(new Set((await stored('statements')).map(hex))).toEqual(new Set(newer.slice(3).map(hex)))
  })
})

const hex = (document: Buffer) => document.toString('hex')

/**
 * Removes top-level fields whose names begin with a dollar sign. The server refuses a replacement with such a field, so tandem
 * writes such documents differently when it reconciles them.
 */
function withoutDollarNames(document: Buffer): Buffer {
  const fields = [...elements(document)].filter(({ name }) => !name.startsWith('$'))
  return documentOf(fields)
}

describe('raw batches', () => {
  it('are Buffers with the stored bytes, from the first batch to the last', async () => {
    const documents = Array.from({ length: 25 }, (_, at) =>
      rawDocument([
        ['_id', at],
        ['2', 1],
        ['1', 'x'.repeat(at)],
      ]),
    )
    await insert('batches', documents)
    const cursor = await RawCursor.open(one.cluster, 'app', { find: 'batches', sort: { _id: 1 }, batchSize: 10 })
    const read: Buffer[] = []
    const sizes: number[] = []
    for (let batch = await cursor.next({ batchSize: 10 }); batch; batch = await cursor.next({ batchSize: 10 })) {
      sizes.push(batch.documents.length)
      for (const document of batch.documents) expect(Buffer.isBuffer(document)).toBe(true)
      read.push(...batch.documents)
    }
    await cursor.close()
    expect(sizes).toEqual([10, 10, 5])
    expect(read).toEqual(documents)
  })

  it('are empty for an empty result', async () => {
    const cursor = await RawCursor.open(one.cluster, 'app', { find: 'nothing' })
    expect((await cursor.next())?.documents).toEqual([])
    expect(await cursor.next()).toBeNull()
    await cursor.close()
  })
})
