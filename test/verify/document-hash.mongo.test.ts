import { Binary, BSONSymbol, Code, Decimal128, Double, Int32, Long, MaxKey, MinKey, Timestamp } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { idElementOf, identityKey } from '../../src/documents/identity.ts'
import { hashedBytesMax } from '../../src/mongo/document-hash.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import {
  array,
  arrayOf,
  doubleBits,
  idOfEveryType,
  insertRaw,
  nastyDocument,
  nested,
  nullValue,
  rawDocument,
  stringValue,
  undefinedValue,
} from '../support/bson-values.ts'
import { Random } from '../support/random.ts'
import { compareBy } from './compare-by.ts'

/** What equal hashes and sizes prove, found out from a server. docs/verification.md names what they do not prove. */

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

type Case = readonly [what: string, onSource: unknown, onDestination: unknown]

/** Values that `$toHashedIndexKey` without the key string would not distinguish, and others. */
const distinguished: readonly Case[] = [
  ['fractions', 2.5, 2.7],
  ['a fraction and none', 2.5, new Double(2)],
  ['fractions of decimals', Decimal128.fromString('2.5'), Decimal128.fromString('2.7')],
  ['numbers above 2^63', 2 ** 70, 2 ** 71],
  ['infinity and a large number', Number.POSITIVE_INFINITY, 1e300],
  ['NaN and zero', Number.NaN, new Double(0)],
  ['a long that no double represents, and its neighbour', Long.fromString('9007199254740993'), new Double(2 ** 53)],
  ['an int and a long', new Int32(5), Long.fromNumber(5)],
  ['an int and a double', new Int32(5), new Double(5)],
  ['a double and a decimal', new Double(5), Decimal128.fromString('5')],
  ['the order of fields', nested([['a', 1], ['b', 2]]), nested([['b', 2], ['a', 1]])], // biome-ignore format: one case, one line
  ['a field that occurs twice', nested([['a', 1], ['a', 2]]), nested([['a', 2], ['a', 1]])], // biome-ignore format: one case, one line
  ['the order of an array', array([1, 2]), array([2, 1])],
  ['an array and a document', array(['x']), nested([['0', 'x']])],
  ['a text and code', 'ab', new Code('ab')],
  ['texts in upper and lower case', 'Ab', 'ab'],
  ['texts with null bytes', stringValue('a\0b'), stringValue('a\0c')],
  ['subtypes of binary data', new Binary(Buffer.from('ab'), 0), new Binary(Buffer.from('ab'), 128)],
  ['a date and a timestamp', new Date(5), new Timestamp({ t: 0, i: 5 })],
  ['true and false', true, false],
  ['null and undefined', nullValue, undefinedValue],
  ['MinKey and MaxKey', new MinKey(), new MaxKey()],
]

const notDistinguished: readonly Case[] = [
  ['a long and a double', Long.fromNumber(5), new Double(5)],
  ['an int and a long, beside a long and an int', array([new Int32(5), Long.fromNumber(7)]), array([Long.fromNumber(5), new Int32(7)])], // biome-ignore format: one case, one line
  ['zero and minus zero', new Double(0), new Double(-0)],
  ['trailing zeros of a decimal', Decimal128.fromString('1'), Decimal128.fromString('1.0')],
  ['the payloads of NaN', doubleBits(0x7ff8_0000_0000_0000n), doubleBits(0x7ff8_0000_0000_0001n)],
  ['a text and a symbol', 'ab', new BSONSymbol('ab')],
  ['the names of the elements of an array', arrayOf([['0', 'x'], ['1', 'y']]), arrayOf([['5', 'x'], ['a', 'y']])], // biome-ignore format: one case, one line
  ['the names of the elements of an array in a document', nested([['a', arrayOf([['0', 'x']])]]), nested([['a', arrayOf([['7', 'x']])]])], // biome-ignore format: one case, one line
]

const name = 'values'

describe.each([
  ['', {}],
  [' in a collection with a collation', { collation: { locale: 'en', strength: 1 } }],
])('hashes and sizes%s', (_, options) => {
  const differing = async (cases: readonly Case[]): Promise<string[]> => {
    for (const [client, side] of [
      [two.sourceClient, 1],
      [two.destinationClient, 2],
    ] as const) {
      await client.db('app').createCollection(name, options)
      const rows = cases.map((one) => rawDocument([['_id', one[0]], ['v', one[side]]])) // biome-ignore format: one row
      await insertRaw(client.db('app'), name, rows)
    }
    const { suspects } = await compareBy(two, 'toHashedIndexKey', await two.entryOf('app', name))
    const found = new Set(suspects.map(identityKey))
    return cases
      .map(([what]) => what)
      .filter((what) => found.has(identityKey(idElementOf(rawDocument([['_id', what]])))))
  }

  it('differ between values that are different', async () => {
    expect(await differing(distinguished)).toEqual(distinguished.map(([what]) => what))
  })

  it('are equal for some values that differ only in their type, so the first pass does not find these', async () => {
    expect(await differing(notDistinguished)).toEqual([])
  })
})

it('a first pass by hashes finds each different, missing and extra document, for _ids and values of every type', async () => {
  const random = new Random('hashes')
  const ids = Array.from({ length: 400 }, (_, number) => {
    const make = random.pick(idOfEveryType)
    return number % 4 === 0 ? nested([['v', make(random)], ['n', number]]) : nested([['n', number], ['v', make(random)]]) // biome-ignore format: one _id
  })
  const plain = idOfEveryType.map((make) => make(random))
  const expected = new Set<string>()
  const rows: { source: Buffer[]; destination: Buffer[] } = { source: [], destination: [] }
  const keys = new Set<string>()
  for (const id of [...plain, ...ids]) {
    const key = identityKey(idElementOf(rawDocument([['_id', id]])))
    if (keys.has(key)) continue
    keys.add(key)
    const seed = random.uint32()
    const documentWith = (more: string): Buffer => nastyDocument(new Random(seed), id, [['last', more]])
    const fate = random.pick(['equal', 'equal', 'equal', 'content', 'missing', 'extra'] as const)
    if (fate !== 'equal') expected.add(key)
    if (fate !== 'extra') rows.source.push(documentWith('one'))
    if (fate !== 'missing') rows.destination.push(documentWith(fate === 'content' ? 'two' : 'one'))
  }
  await insertRaw(two.sourceClient.db('app'), name, rows.source)
  await insertRaw(two.destinationClient.db('app'), name, rows.destination)
  const { suspects, documents, bytes } = await compareBy(two, 'toHashedIndexKey', await two.entryOf('app', name))
  expect(new Set(suspects.map(identityKey))).toEqual(expected)
  expect(expected.size).toBeGreaterThan(50)
  expect(documents).toEqual({ source: rows.source.length, destination: rows.destination.length })
  expect(bytes).toBe(rows.source.reduce((sum, { length }) => sum + length, 0))
})

it('documents that are too large for a hash are suspects, so they are compared as bytes', async () => {
  const large = (bytes: number): Buffer => {
    const empty = rawDocument([['_id', bytes], ['v', '']]) // biome-ignore format: one document
    return rawDocument([['_id', bytes], ['v', '\0'.repeat(bytes - empty.length)]]) // biome-ignore format: one document
  }
  const sizes = [1_000, hashedBytesMax - 1, hashedBytesMax, 16 * 1024 * 1024]
  for (const client of [two.sourceClient, two.destinationClient]) {
    for (const size of sizes) await insertRaw(client.db('app'), name, [large(size)])
  }
  const { suspects, bytes, charged } = await compareBy(two, 'toHashedIndexKey', await two.entryOf('app', name))
  const found = new Set(suspects.map((idElement) => idElement.readInt32LE(5)))
  expect([...found]).toEqual(sizes.slice(2))
  // `bytesPerSecond` limits what the source sends: the replies of hashes, and the documents that are read as bytes.
  const unread = hashedBytesMax + 16 * 1024 * 1024
  expect(charged).toBeGreaterThan(unread)
  expect(charged).toBeLessThan(unread + 1_000)
  expect(bytes).toBe(sizes.reduce((sum, size) => sum + size, 0))
})

it('of documents of 10 KB, hashes need less than a hundredth of the bytes', async () => {
  const random = new Random('bytes')
  const documents = Array.from({ length: 2_000 }, (_, _id) => ({ _id, v: random.bytes(10_000).toString('latin1') }))
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client.db('app').collection<{ _id: number }>(name).insertMany(documents)
  }
  const sentBy = async (): Promise<number> => {
    const sent = [two.sourceClient, two.destinationClient].map(async (client) => {
      const { network } = await client.db('admin').command({ serverStatus: 1, metrics: 0 })
      return Number(network.bytesOut)
    })
    return (await Promise.all(sent)).reduce((sum, bytes) => sum + bytes, 0)
  }
  const bytesOf = async (method: Parameters<typeof compareBy>[1]): Promise<number> => {
    const before = await sentBy()
    const { suspects } = await compareBy(two, method, await two.entryOf('app', name))
    expect(suspects).toEqual([])
    return (await sentBy()) - before
  }
  const binary = await bytesOf('binary')
  expect(binary).toBeGreaterThan(2 * 2_000 * 10_000)
  expect(binary / (await bytesOf('toHashedIndexKey'))).toBeGreaterThan(100)
})
