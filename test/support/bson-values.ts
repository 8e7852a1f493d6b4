import { createRequire } from 'node:module'
import {
  Binary,
  BSON,
  BSONRegExp,
  BSONSymbol,
  Code,
  DBRef,
  type Db,
  Decimal128,
  Double,
  Int32,
  Long,
  MaxKey,
  MinKey,
  ObjectId,
  Timestamp,
} from 'mongodb'
import type { Random } from './random.ts'

/** A BSON value as bytes, for values that js-bson cannot write or does not write exactly. */
export class RawValue {
  readonly type: number
  readonly payload: Buffer

  constructor(type: number, payload: Buffer) {
    this.type = type
    this.payload = payload
  }
}

export type RawField = readonly [name: string, value: unknown]

/**
 * Writes exactly the given fields in their order, including duplicates. JavaScript objects reorder numeric names, and
 * js-bson drops or converts undefined and DBPointer. Values are RawValues or anything that js-bson can serialise.
 */
export function rawDocument(fields: readonly RawField[]): Buffer {
  const parts: Buffer[] = [Buffer.alloc(4)]
  for (const [name, value] of fields) {
    const raw = value instanceof RawValue ? value : rawValue(value)
    parts.push(Buffer.from([raw.type]), Buffer.from(`${name}\0`), raw.payload)
  }
  parts.push(Buffer.from([0]))
  const document = Buffer.concat(parts)
  document.writeInt32LE(document.length)
  return document
}

function rawValue(value: unknown): RawValue {
  const written = Buffer.from(BSON.serialize({ v: value }))
  return new RawValue(written[4] as number, written.subarray(7, written.length - 1))
}

export const nested = (fields: readonly RawField[]): RawValue => new RawValue(3, rawDocument(fields))
export const array = (items: readonly unknown[]): RawValue =>
  arrayOf(items.map((item, i) => [String(i), item] as const))
/** Returns an array whose elements have these names. Drivers write 0, 1, 2 and so on; a server accepts any names. */
export const arrayOf = (elements: readonly RawField[]): RawValue => new RawValue(4, rawDocument(elements))
export const undefinedValue = new RawValue(6, Buffer.alloc(0))
export const nullValue = new RawValue(10, Buffer.alloc(0))

/** Returns a double from its bits, because many programs lose NaN payloads and the sign of zero. */
export function doubleBits(bits: bigint): RawValue {
  const payload = Buffer.alloc(8)
  payload.writeBigUInt64LE(bits)
  return new RawValue(1, payload)
}

/** Returns a date in milliseconds, which may be outside the range of a JavaScript Date. */
export function dateMillis(milliseconds: bigint): RawValue {
  const payload = Buffer.alloc(8)
  payload.writeBigInt64LE(milliseconds)
  return new RawValue(9, payload)
}

export function stringValue(text: string | Buffer): RawValue {
  const bytes = typeof text === 'string' ? Buffer.from(text) : text
  const length = Buffer.alloc(4)
  length.writeInt32LE(bytes.length + 1)
  return new RawValue(2, Buffer.concat([length, bytes, Buffer.from([0])]))
}

export function dbPointer(namespace: string, id: Buffer): RawValue {
  return new RawValue(12, Buffer.concat([stringValue(namespace).payload, id]))
}

interface Sequence {
  push(document: object, bytes: Buffer): number
}
const { DocumentSequence } = createRequire(import.meta.url)('mongodb/lib/cmap/commands.js') as {
  DocumentSequence: new (field: string) => Sequence
}

/** Inserts documents as raw bytes, for which the driver has no public API. */
export async function insertRaw(db: Db, collection: string, documents: readonly Buffer[]): Promise<void> {
  const sequence = new DocumentSequence('documents')
  for (const document of documents) sequence.push({}, document)
  // `db.command` returns write errors in its reply instead of throwing them.
  const { writeErrors } = await db.command({ insert: collection, documents: sequence, ordered: false })
  if (writeErrors?.length > 0) throw Object.assign(new Error(writeErrors[0].errmsg), { code: writeErrors[0].code })
}

/** Updates documents by the bytes of their `_id`. A change is a replacement or update operators. */
export async function updateRaw(
  db: Db,
  collection: string,
  updates: readonly (readonly [id: unknown, change: Buffer])[],
): Promise<void> {
  const sequence = new DocumentSequence('updates')
  for (const [id, change] of updates) {
    const query = nested([['_id', id]])
    sequence.push(
      {},
      rawDocument([
        ['q', query],
        ['u', new RawValue(3, change)],
      ]),
    )
  }
  const { n, writeErrors } = await db.command({ update: collection, updates: sequence })
  if (n !== updates.length)
    throw new Error(`the server updated ${n} of ${updates.length} documents: ${writeErrors?.[0]?.errmsg}`)
}

/** Deletes documents by the bytes of their `_id`. */
export async function deleteRaw(db: Db, collection: string, ids: readonly unknown[]): Promise<void> {
  const sequence = new DocumentSequence('deletes')
  for (const id of ids) {
    const query = nested([['_id', id]])
    sequence.push(
      {},
      rawDocument([
        ['q', query],
        ['limit', 1],
      ]),
    )
  }
  const { n, writeErrors } = await db.command({ delete: collection, deletes: sequence })
  if (n !== ids.length)
    throw new Error(`the server deleted ${n} of ${ids.length} documents: ${writeErrors?.[0]?.errmsg}`)
}

const objectId = (random: Random): ObjectId => new ObjectId(random.bytes(12))

/**
 * One value of each kind that breaks sync tools. A top-level `Timestamp(0, 0)` is excluded because the server replaces it
 * with its own time on insert, so two servers never store the same value.
 */
export const nastyScalars: readonly ((random: Random) => unknown)[] = [
  () => new Double(-0.0),
  () => new Double(Number.NaN),
  () => doubleBits(0x7ff8_dead_beef_0001n),
  () => doubleBits(0xfff0_0000_0000_0000n),
  () => doubleBits(0x0000_0000_0000_0001n),
  (random) => new Int32(random.int(-3, 3)),
  (random) => Long.fromNumber(random.int(-3, 3)),
  (random) => new Double(random.int(-3, 3)),
  (random) => Decimal128.fromString(String(random.int(-3, 3))),
  () => Long.MAX_VALUE,
  () => Long.MIN_VALUE,
  () => Long.fromString('9007199254740993'),
  () => new Double(9007199254740992),
  (random) =>
    Decimal128.fromString(random.pick(['NaN', '-0', '0E+10', 'Infinity', '-Infinity', '1.10', '1.1', '9E+6144'])),
  (random) => new Binary(random.bytes(random.int(0, 20)), random.pick([0, 5, 6, 128, 255])),
  (random) => new Binary(random.bytes(16), random.pick([3, 4])),
  (random) => new Binary(random.bytes(random.int(0, 9)), 2),
  () => new BSONRegExp('^a.*\\d$', 'imx'),
  () => new BSONRegExp('', ''),
  () => new Code('function () { return "é" }'),
  (random) => new Code('return x', { x: random.int(0, 9), y: { z: [1] } }),
  () => new BSONSymbol('symbol 𝒮'),
  (random) => new DBRef('elsewhere', objectId(random), 'other', { extra: 1 }),
  (random) => dbPointer('db.collection', random.bytes(12)),
  () => new MinKey(),
  () => new MaxKey(),
  (random) => new Timestamp({ t: random.int(1, 0xffff_ffff), i: random.int(0, 0xffff_ffff) }),
  () => new Timestamp({ t: 0xffff_ffff, i: 0xffff_ffff }),
  () => dateMillis(-9_223_372_036_854_775_808n),
  () => dateMillis(9_223_372_036_854_775_807n),
  () => dateMillis(-1n),
  () => nullValue,
  () => undefinedValue,
  () => true,
  () => false,
  objectId,
  () => '',
  () => stringValue('NUL \0 in the middle'),
  () => 'non-BMP 😀𝄞 and combining e\u0301 vs é',
  () => '$dollar.and.dots',
  (random) => random.word(random.int(1, 300)),
]

const nastyNames = [
  '',
  '10',
  '2',
  'b',
  '0',
  'a.b',
  'a.0.c',
  '$x',
  '$set',
  '__proto__',
  'constructor',
  'toString',
  'é',
  '😀',
  ' ',
  '-1',
]

/** Returns a random value. Nesting becomes rarer with depth. */
function nastyValue(random: Random, depth = 0): unknown {
  const shape = random.weighted([
    [depth < 6 ? 3 : 0, 'object'],
    [depth < 6 ? 2 : 0, 'array'],
    [10, 'scalar'],
    [depth === 0 ? 0.3 : 0, 'deep'],
    [depth === 0 ? 0.1 : 0, 'long'],
  ] as const)
  if (shape === 'object') return nested(nastyFields(random, random.int(0, 6), depth + 1))
  if (shape === 'array') return array(Array.from({ length: random.int(0, 6) }, () => nastyValue(random, depth + 1)))
  if (shape === 'deep') return deep(random.int(30, 90))
  if (shape === 'long')
    return array(Array.from({ length: random.int(100, 600) }, (_, i) => (i % 7 === 0 ? Long.fromInt(i) : i)))
  return random.pick(nastyScalars)(random)
}

/** Fields in an unusual order, such as `2` after `10`, and sometimes with a duplicate name. */
function nastyFields(random: Random, count: number, depth = 0): RawField[] {
  const fields: RawField[] = []
  for (let i = 0; i < count; i++) {
    const name = random.chance(0.6) ? random.pick(nastyNames) : random.word(random.int(1, 8))
    fields.push([name, nastyValue(random, depth)])
  }
  const first = fields[0]
  if (first && random.chance(0.1)) fields.push([first[0], nastyValue(random, depth)])
  return fields
}

/**
 * Returns a document that no decoder returns unchanged. `more` is appended unchanged, for fields that indexes or tests
 * rely on.
 */
export function nastyDocument(random: Random, id: unknown, more: readonly RawField[] = []): Buffer {
  const fields = nastyFields(random, random.int(1, 8))
  // The server accepts top-level `$` names only after another field, and never a second `_id`.
  return rawDocument([['_id', id], ...fields.filter(([name]) => name !== '_id'), ...more])
}

/**
 * Returns a deeply nested value. The server stores at most 180 levels, and change events and commands use some of them.
 */
function deep(levels: number): unknown {
  let value: unknown = 'bottom'
  for (let i = 0; i < levels; i++) value = i % 3 === 0 ? array([value]) : nested([['d', value]])
  return value
}

/** Generators of an `_id` of every allowed type. Some of them are equal in value but not in bytes. */
export const idOfEveryType: readonly ((random: Random) => unknown)[] = nastyScalars.filter((make) => {
  const sample = make({
    int: () => 1,
    pick: (items: unknown[]) => items[0],
    bytes: (n: number) => Buffer.alloc(n),
    word: () => 'w',
  } as unknown as Random)
  // The server rejects arrays, regular expressions and undefined as `_id`, and the `$` names of a DBRef.
  return !(sample instanceof BSONRegExp || sample === undefinedValue || sample instanceof DBRef)
})
