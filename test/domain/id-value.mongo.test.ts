import fc from 'fast-check'
import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { idValueKey } from '../../src/domain/id-value.ts'
import { laneHash } from '../../src/domain/lane-hash.ts'
import type { TypedValue } from '../../src/domain/raw-bson.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import { documentOf, int32, typed } from './bson-arbitraries.ts'
import { anyPair, equalPair, innerPair, type Pair, rareSpellings, strangers } from './spelled-values.ts'

/**
 * The server decides which values are equal: the test inserts one encoding and then the other, and checks whether the second
 * insert fails with a duplicate key. This verifies the model that the tests of keys and lanes without a server use.
 */

let set: ReplicaSet
let client: MongoClient

beforeAll(async () => {
  set = await borrowReplicaSet()
  client = new MongoClient(set.uri)
})

afterAll(async () => {
  await client.close()
  await set.stop()
})

const keyOf = (value: TypedValue) => idValueKey(value, value[0] as number, 1, value.length)
const laneOf = (value: TypedValue) => laneHash(value, value[0] as number, 1, value.length)

/** Inserts each pair as two `_id`s. Returns for each pair whether the server reports the second as a duplicate of the first. */
async function foundEqual(collection: string, pairs: Pair[], idOf: (value: TypedValue, at: number) => TypedValue) {
  const documents = pairs.flatMap(({ one, other }, at) =>
    [one, other].map((value) => documentOf([{ name: '_id', value: idOf(value, at) }])),
  )
  const { writeErrors = [] } = await client.db('app').command({
    insert: collection,
    documents: rawSequence('documents', documents),
    ordered: false,
    writeConcern: { w: 1 },
  })
  const duplicates = new Set<number>()
  for (const { code, index, errmsg } of writeErrors as { code: number; index: number; errmsg: string }[]) {
    expect(code, `${errmsg}: ${pairs[index >> 1]?.text}`).toBe(11000)
    expect(index % 2, 'the first of a pair is never refused').toBe(1)
    duplicates.add(index >> 1)
  }
  return pairs.map((_, at) => duplicates.has(at))
}

function compare(pairs: Pair[], equal: boolean[]): void {
  pairs.forEach(({ one, other, equal: expected, text }, at) => {
    expect(expected, `the model is wrong about ${text}`).toBe(equal[at])
    expect(keyOf(one) === keyOf(other), `idValueKey is wrong about ${text}`).toBe(equal[at])
    if (equal[at]) expect(laneOf(one), `laneHash is wrong about ${text}`).toBe(laneOf(other))
  })
}

/** Gives each pair an `_id` of its own, so that one command can insert a thousand pairs. */
const numbered = (value: TypedValue, at: number): TypedValue =>
  typed(
    0x03,
    documentOf([
      { name: 'pair', value: typed(0x10, int32(at)) },
      { name: 'value', value },
    ]),
  )

const sample = (arbitrary: fc.Arbitrary<Pair>, numRuns: number) => fc.sample(arbitrary, { numRuns, seed: 20_260_101 })

describe('two values', () => {
  it.each<[string, fc.Arbitrary<Pair>]>([
    ['in two encodings', equalPair],
    ['that differ slightly', anyPair],
    ['of different structure', strangers],
    ['inside other values', innerPair],
    ...Object.entries(rareSpellings).map(([name, pair]) => [`that are ${name}`, pair] as [string, fc.Arbitrary<Pair>]),
  ])('%s are equal in tandem exactly if they are equal in the server', async (name, arbitrary) => {
    const pairs = sample(arbitrary, 600)
    const equal = await foundEqual(name.replaceAll(' ', '_'), pairs, numbered)
    compare(pairs, equal)
  })

  it('are compared in the same way when they are the whole _id', async () => {
    const pairs = [...sample(equalPair, 40), ...sample(anyPair, 60)]
    const equal: boolean[] = []
    for (const pair of pairs) {
      equal.push(...(await foundEqual('whole', [pair], (value) => value)))
      await client.db('app').command({ delete: 'whole', deletes: [{ q: {}, limit: 0 }], writeConcern: { w: 1 } })
    }
    compare(pairs, equal)
    expect(new Set(equal).size).toBe(2)
  })
})
