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
 * What happens to documents while a sync runs. `prepare` puts onto the source what is there before, `change` does the rest;
 * what is left is the same whenever that was.
 */
export interface Fates {
  prepare(db: Db): Promise<void>
  change(db: Db): Promise<void>
}

const setting = (field: string, value: unknown) => rawDocument([['$set', nested([[field, value]])]])

/** One value at the top, in a document, in an array, in a document in an array, and under a name that is there twice. */
export const documentOf = (id: unknown, value: unknown): Buffer =>
  rawDocument([
    ['_id', id],
    ['v', value],
    ['in', nested([['list', array([value, nested([['v', value]])])]])],
    ['w', value],
    ['w', 1],
  ])

/** Every value, and everything that is nearly the same, turned into each other in each way. */
export const values: Fates = {
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

/** `_id`s of every type that may be one, side by side; most of them drawn. */
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
 * Two that are one `_id` to the server cannot both be there: the first is. (6.0.27 stumbles when it is to name a duplicate of
 * NaN, infinity and the like, and answers by codes of its own.)
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

/** Another spelling of the same `_id`, where there is one. */
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

/** `_id`s of every type in one collection, with each thing that can happen to a document in turn. */
export function ids(collection: string, options: { collated: boolean; create: Record<string, unknown> }): Fates {
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

/** As large as a document may be, to the byte. */
function largest(id: string, seed: number): Buffer {
  const fields = (data: Buffer) => rawDocument([...sized(id, 1), ['data', new Binary(data)]])
  return fields(filling(seed, documentMax - fields(Buffer.alloc(0)).length))
}

const sized = (id: string, n: number): [string, unknown][] => [
  ['_id', id],
  ['n', new Int32(n)],
]

/** Not a run of one byte, which the storage engine would fold away. */
const filling = (seed: number, length: number) => Buffer.alloc(length, new Random(`filling ${seed}`).bytes(1021))

/** Of nothing but small fields. */
function widest(id: string): Buffer {
  const head = rawDocument(sized(id, 1))
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

/** Documents of 16 MiB. */
export const large: Fates = {
  async prepare(db) {
    const before = ['stays', 'set', 'set whole', 'shrinks', 'goes', 'comes back']
    for (const [at, id] of before.entries()) await insertRaw(db, 'large', [largest(id, at)])
    await insertRaw(db, 'large', [rawDocument(sized('grows', 1)), widest('wide')])
  },
  async change(db) {
    await insertRaw(db, 'large', [largest('comes', 10)])
    await updateRaw(db, 'large', [['set', setting('n', new Int32(2))]])
    const { length } = largest('set whole', 0)
    const rest = rawDocument([...sized('set whole', 1), ['data', new Binary(Buffer.alloc(0))]]).length
    await updateRaw(db, 'large', [['set whole', setting('data', new Binary(filling(11, length - rest)))]])
    await updateRaw(db, 'large', [['grows', largest('grows', 12)]])
    await updateRaw(db, 'large', [['shrinks', rawDocument(sized('shrinks', 2))]])
    await updateRaw(db, 'large', [['wide', setting('f1', 'x')]])
    await deleteRaw(db, 'large', ['goes', 'comes back'])
    await insertRaw(db, 'large', [largest('comes back', 13)])
  },
}
