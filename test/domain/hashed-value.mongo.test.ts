import fc from 'fast-check'
import { BSON, type Document, type MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import { hashedValue } from '../../src/domain/hashed-value.ts'
import { bsonType, fieldNamed, readFields, type TypedValue } from '../../src/domain/raw-bson.ts'
import { RawValue } from '../../src/mongo/raw-values.ts'
import { oneSet } from '../mongo/one-set.ts'
import { oneOfEveryType, typed } from './bson-arbitraries.ts'

const one = oneSet()

/** Returns the hash that the server computes, by a test command (`enableTestCommands`). */
async function serverHash(client: MongoClient, value: TypedValue): Promise<bigint> {
  const reply: Document = await client
    .db('admin')
    .command({ _hashBSONElement: new RawValue(value), seed: 0 }, { promoteLongs: false, enableUtf8Validation: false })
  return reply['out'].toBigInt()
}

const double = (value: number): TypedValue => fieldOf({ v: new BSON.Double(value) })
const fieldOf = (document: Document): TypedValue =>
  fieldNamed(readFields(Buffer.from(BSON.serialize(document))), 'v') as TypedValue

const numbers = [
  ...[0, -0, 1.5, -1.5, 1e300, -1e300, 2 ** 63, 2 ** 63 + 2 ** 12, -(2 ** 63), 2 ** 53 + 2, Number.NaN].map(double),
  ...[Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 4.9e-324].map(double),
  ...[7, -7].map((value) => fieldOf({ v: new BSON.Int32(value) })),
  ...['7', '-9223372036854775808', '9223372036854775807'].map((text) => fieldOf({ v: BSON.Long.fromString(text) })),
]

it('property: is the value that the server computes for a hashed index, for every supported type', async () => {
  const check = async (value: TypedValue): Promise<void> => {
    const hashed = hashedValue(value)
    // The test command takes a text for the name of a collection, so it refuses a text that contains a NUL. The server refuses
    // random content of one binary subtype.
    const isRefused =
      value[0] === bsonType.string ? value.subarray(5, -1).includes(0) : value[0] === bsonType.binary && value[5] === 7
    if (hashed === null || isRefused) return
    expect(hashed[0]).toBe(bsonType.int64)
    expect({ value, hash: hashed.readBigInt64LE(1) }).toEqual({ value, hash: await serverHash(one.client, value) })
  }
  for (const value of numbers) await check(value)
  const all = async (values: TypedValue[]): Promise<void> => {
    for (const value of values) await check(value)
  }
  await fc.assert(fc.asyncProperty(oneOfEveryType, all), { numRuns: 50 })
})

it('is known for the types that keys usually have', () => {
  for (const value of numbers) expect(hashedValue(value)).not.toBeNull()
  for (const value of [typed(bsonType.null), fieldOf({ v: 'x' }), fieldOf({ v: new Date(5) }), fieldOf({ v: true })]) {
    expect(hashedValue(value)).not.toBeNull()
  }
  expect(hashedValue(fieldOf({ v: new BSON.ObjectId() }))).not.toBeNull()
  expect(hashedValue(fieldOf({ v: new BSON.UUID() }))).not.toBeNull()
})
