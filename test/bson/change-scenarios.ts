import type { Db } from 'mongodb'
import { Binary, Int32, Long } from 'mongodb'
import {
  array,
  deleteRaw,
  doubleBits,
  idOfEveryType,
  insertRaw,
  nested,
  RawValue,
  rawDocument,
  updateRaw,
} from '../support/bson-values.ts'
import { idBytes } from '../support/compare-raw.ts'
import { Random } from '../support/random.ts'
import { levels, nearValues } from './every-value.ts'

/**
 * Changes of documents during a sync. `prepare` inserts the documents that exist before the changes, and `change` changes them. The
 * result does not depend on when `change` runs.
 */
export interface ChangeScenario {
  prepare(db: Db): Promise<void>
  change(db: Db): Promise<void>
}

const setting = (field: string, value: unknown) => rawDocument([['$set', nested([[field, value]])]])

/** Creates a document with the value at the top level, in a document, in an array, in a document in an array, and under a duplicate name. */
export const documentOf = (id: unknown, value: unknown): Buffer =>
  rawDocument([
    ['_id', id],
    ['v', value],
    ['in', nested([['list', array([value, nested([['v', value]])])]])],
    ['w', value],
    ['w', 1],
  ])

/** Changes each value of `nearValues` into the other value of its pair, and back, with each kind of operation. */
export const values: ChangeScenario = {
  async prepare(db) {
    for (const [what, value, other] of nearValues) {
      await insertRaw(db, 'values', [
        documentOf(`stays ${what}`, value),
        documentOf(`stays other ${what}`, other),
        documentOf(`set ${what}`, other),
        documentOf(`replaced ${what}`, other),
        documentOf(`replaced by other ${what}`, value),
        documentOf(`goes ${what}`, value),
        documentOf(`comes back ${what}`, value),
      ])
    }
  },
  async change(db) {
    for (const [what, value, other] of nearValues) {
      await insertRaw(db, 'values', [documentOf(`comes ${what}`, value)])
      await updateRaw(db, 'values', [
        [`set ${what}`, setting('v', value)],
        [`replaced ${what}`, documentOf(`replaced ${what}`, value)],
        [`replaced by other ${what}`, documentOf(`replaced by other ${what}`, other)],
      ])
      await deleteRaw(db, 'values', [`goes ${what}`, `comes back ${what}`])
      await insertRaw(db, 'values', [documentOf(`comes back ${what}`, other)])
    }
  },
}

/** Returns `_id`s of every type that the server allows, most of them random. */
function drawnIds(seed: string): unknown[] {
  const random = new Random(seed)
  const drawn = Array.from({ length: 4 }, () => idOfEveryType.map((make) => make(random))).flat()
  const texts = [1, 2, 10, 100].flatMap((number) => [`${seed} ${number}`, `É ${number}`, `ß ${number}`])
  const odd = [
    doubleBits(0x7ff8_0000_0000_0001n),
    doubleBits(0xfff8_0000_0000_0000n),
    nested([['b', `${seed}`]]),
    nested([
      ['a', `Ab ${seed}`],
      ['a', array([`cD ${seed}`])],
    ]),
    levels(100, 'documents', seed),
    'long'.repeat(50_000) + seed,
  ]
  return [...drawn, ...texts, ...odd]
}

/**
 * Inserts the documents whose `_id` the server does not consider a duplicate of an earlier `_id`. For duplicates of NaN, infinity and
 * similar values, 6.0.27 fails to format the duplicate key and returns other error codes.
 */
async function insertWhereFree(db: Db, collection: string, documents: Buffer[]): Promise<number> {
  let inserted = 0
  for (const document of documents) {
    try {
      await insertRaw(db, collection, [document])
      inserted += 1
    } catch (error) {
      const { code, message } = error as Error & { code?: number }
      if (code !== 11_000 && !message.startsWith('KeyString format error')) throw error
    }
  }
  return inserted
}

const row = (id: unknown, fate: string) =>
  rawDocument([
    ['_id', id],
    ['fate', fate],
  ])

/** Returns another representation of the same `_id` if one exists, otherwise the `_id` itself. */
function respelled(id: RawValue, collated: boolean): unknown {
  if (id.type === 16) return Long.fromInt(id.payload.readInt32LE())
  if (id.type === 18 && id.payload.readInt32LE(4) === 0) return doubleBits(bitsOf(Number(id.payload.readBigInt64LE())))
  if (id.type === 2 && collated) return id.payload.toString('utf8', 4, id.payload.length - 1).toUpperCase()
  return id
}

function bitsOf(value: number): bigint {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(value)
  return bytes.readBigUInt64LE()
}

/** One collection has `_id`s of every type. Each document is changed in one of the possible ways. */
export function ids(
  collection: string,
  options: { collated: boolean; create: Record<string, unknown> },
): ChangeScenario {
  return {
    async prepare(db) {
      await db.createCollection(collection, options.create)
      const documents = drawnIds('Before').map((id) => row(id, 'stays'))
      const inserted = await insertWhereFree(db, collection, documents)
      if (inserted < 60) throw new Error(`only ${inserted} different _ids`)
    },
    async change(db) {
      const found = await db
        .collection(collection)
        .find({}, { raw: true, hint: { _id: 1 } })
        .toArray()
      for (const [at, bytes] of found.entries()) {
        const value = idBytes(Buffer.from(bytes as unknown as Uint8Array))
        const id = new RawValue(value[0] as number, value.subarray(1))
        if (at % 6 === 1) await updateRaw(db, collection, [[id, setting('fate', 'set')]])
        if (at % 6 === 2) await updateRaw(db, collection, [[id, row(id, 'replaced')]])
        if (at % 6 >= 3) await deleteRaw(db, collection, [id])
        if (at % 6 === 4) await insertRaw(db, collection, [row(id, 'back')])
        if (at % 6 === 5) await insertRaw(db, collection, [row(respelled(id, options.collated), 'respelled')])
      }
      const documents = drawnIds('Later').map((id) => row(id, 'comes'))
      await insertWhereFree(db, collection, documents)
    },
  }
}

const documentMax = 16 * 1024 * 1024

/** Creates a document of exactly the maximum size. */
function largest(id: string, seed: number): Buffer {
  const fields = (data: Buffer) => rawDocument([...idAndNumber(id, 1), ['data', new Binary(data)]])
  return fields(filling(seed, documentMax - fields(Buffer.alloc(0)).length))
}

const idAndNumber = (id: string, n: number): [string, unknown][] => [
  ['_id', id],
  ['n', new Int32(n)],
]

/** Returns a buffer with a random pattern, because the storage engine would compress equal bytes to almost nothing. */
const filling = (seed: number, length: number) => Buffer.alloc(length, new Random(`filling ${seed}`).bytes(1021))

/** Creates a document of the maximum size that consists of small fields only. */
function widest(id: string): Buffer {
  const head = rawDocument(idAndNumber(id, 1))
  const document = Buffer.alloc(documentMax)
  let at = head.copy(document) - 1
  for (let number = 0; at < documentMax - 14; number++) {
    at = document.writeUInt8(16, at)
    at += document.write(`f${number.toString(36)}\0`, at)
    at = document.writeInt32LE(number, at)
  }
  document.writeInt32LE(at + 1, 0)
  return document.subarray(0, at + 1)
}

/** Changes of documents of 16 MiB. */
export const large: ChangeScenario = {
  async prepare(db) {
    const before = ['stays', 'set', 'set whole', 'shrinks', 'goes', 'comes back']
    for (const [at, id] of before.entries()) await insertRaw(db, 'large', [largest(id, at)])
    await insertRaw(db, 'large', [rawDocument(idAndNumber('grows', 1)), widest('wide')])
  },
  async change(db) {
    await insertRaw(db, 'large', [largest('comes', 10)])
    await updateRaw(db, 'large', [['set', setting('n', new Int32(2))]])
    const { length } = largest('set whole', 0)
    const rest = rawDocument([...idAndNumber('set whole', 1), ['data', new Binary(Buffer.alloc(0))]]).length
    await updateRaw(db, 'large', [['set whole', setting('data', new Binary(filling(11, length - rest)))]])
    await updateRaw(db, 'large', [['grows', largest('grows', 12)]])
    await updateRaw(db, 'large', [['shrinks', rawDocument(idAndNumber('shrinks', 2))]])
    await updateRaw(db, 'large', [['wide', setting('f1', 'x')]])
    await deleteRaw(db, 'large', ['goes', 'comes back'])
    await insertRaw(db, 'large', [largest('comes back', 13)])
  },
}
