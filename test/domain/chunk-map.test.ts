import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ChunkMap } from '../../src/domain/chunk-map.ts'
import { compareKeys } from '../../src/domain/compare-values.ts'
import { hashedValue } from '../../src/domain/hashed-value.ts'
import { bsonType, type TypedValue, typedInt32 } from '../../src/domain/raw-bson.ts'

const minKey: TypedValue = Buffer.from([bsonType.minKey])
const nullValue: TypedValue = Buffer.from([bsonType.null])
const key = [
  { path: 'a', hashed: false },
  { path: 'b.c', hashed: false },
]

/** Generates a value of a field. There are few different values, so that bounds and documents often have equal values. */
const value = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 5 }).map(typedInt32) },
  { weight: 1, arbitrary: fc.constantFrom(minKey, nullValue, Buffer.from([bsonType.maxKey])) },
)
const keyValues = fc.tuple(value, value)
const chunks = fc.array(fc.tuple(keyValues, fc.constantFrom('s0', 's1', 's2')), { maxLength: 12 }).map((some) => {
  const starts = [{ min: [minKey, minKey] as TypedValue[], shard: 's0' }]
  for (const [min, shard] of some.sort(([one], [other]) => compareKeys(one, other))) {
    if (compareKeys(min, starts.at(-1)?.min ?? []) > 0) starts.push({ min, shard })
  }
  return starts
})
const shardOf = (starts: { min: TypedValue[]; shard: string }[], values: TypedValue[]): string | undefined =>
  starts.findLast(({ min }) => compareKeys(min, values) <= 0)?.shard

describe('a map of chunks', () => {
  it('property: finds the shard whose chunk contains the key', () => {
    fc.assert(
      fc.property(chunks, keyValues, (starts, values) => {
        expect(new ChunkMap(key, starts).locate(values)?.shard).toBe(shardOf(starts, values))
      }),
      { numRuns: 1_000 },
    )
  })

  it('property: every key with the same values of the deciding fields is on the same shard', () => {
    fc.assert(
      fc.property(chunks, keyValues, keyValues, (starts, values, others) => {
        const location = new ChunkMap(key, starts).locate(values)
        const similar = values.map((one, at) => (at < (location?.fields ?? 0) ? one : (others[at] as TypedValue)))
        expect(shardOf(starts, similar)).toBe(location?.shard)
      }),
      { numRuns: 1_000 },
    )
  })

  it('is not consistent if a bound has other fields than the key, because the key was refined between two reads', () => {
    const [a] = key as [(typeof key)[0], (typeof key)[1]]
    const refined = [
      { min: [minKey, minKey], shard: 's0' },
      { min: [typedInt32(3), minKey], shard: 's1' },
    ]
    expect(new ChunkMap([a], refined).isConsistent).toBe(false)
    expect(new ChunkMap(key, refined).isConsistent).toBe(true)
  })

  it('names only the first field for values of that field that no chunk boundary divides', () => {
    const map = new ChunkMap(key, [
      { min: [minKey, minKey], shard: 's0' },
      { min: [typedInt32(3), minKey], shard: 's1' },
      { min: [typedInt32(5), typedInt32(7)], shard: 's0' },
    ])
    expect(map.locate([typedInt32(2), typedInt32(9)])).toEqual({ shard: 's0', fields: 1 })
    expect(map.locate([typedInt32(4), typedInt32(9)])).toEqual({ shard: 's1', fields: 1 })
    expect(map.locate([typedInt32(5), typedInt32(6)])).toEqual({ shard: 's1', fields: 2 })
    expect(map.locate([typedInt32(5), typedInt32(7)])).toEqual({ shard: 's0', fields: 2 })
  })

  it('finds the shard of a hashed key, and no shard for a value whose hash tandem does not compute', () => {
    const long = (value: bigint): TypedValue => {
      const bytes: Buffer = Buffer.alloc(9)
      bytes[0] = bsonType.int64
      bytes.writeBigInt64LE(value, 1)
      return bytes
    }
    const map = new ChunkMap(
      [{ path: 'a', hashed: true }],
      [
        { min: [minKey], shard: 's0' },
        { min: [long(0n)], shard: 's1' },
      ],
    )
    for (let value = 0; value < 20; value++) {
      const isNegative = (hashedValue(typedInt32(value))?.readBigInt64LE(1) ?? 0n) < 0n
      expect(map.locate([typedInt32(value)])).toEqual({ shard: isNegative ? 's0' : 's1', fields: 1 })
    }
    expect(map.locate([Buffer.from([bsonType.document, 5, 0, 0, 0, 0])])).toBeNull()
  })

  it('says whether the collection is on several shards', () => {
    const starts = ['s0', 's0'].map((shard, at) => ({ min: [at === 0 ? minKey : typedInt32(at), minKey], shard }))
    expect(new ChunkMap(key, starts).isDistributed).toBe(false)
    expect(new ChunkMap(key, [...starts, { min: [typedInt32(7), minKey], shard: 's1' }]).isDistributed).toBe(true)
  })
})
