import fc from 'fast-check'
import { BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { hasKey, planReads } from '../../src/documents/target-reads.ts'
import { ChunkMap } from '../../src/domain/chunk-map.ts'
import { fieldNamed, readFields, type TypedValue } from '../../src/domain/raw-bson.ts'
import { shardKeyValues } from '../../src/domain/shard-key.ts'

const bytes = (document: Document): Buffer => Buffer.from(BSON.serialize(document))
const typed = (value: unknown): TypedValue => fieldNamed(readFields(bytes({ v: value })), 'v') as TypedValue
const key = ['a', 'b.c'].map((path) => ({ path, hashed: false }))
const min = (a: unknown, c: unknown): TypedValue[] => [typed(a), typed(c)]
const map = new ChunkMap(key, [
  { min: min(new BSON.MinKey(), new BSON.MinKey()), shard: 's0' },
  { min: min(3, new BSON.MinKey()), shard: 's1' },
  { min: min(5, 7), shard: 's2' },
  { min: min(5, 9), shard: 's0' },
])

interface Changed {
  id: number
  documentKey: Buffer | null
}
const changed = (id: number, fields: Document | null): Changed => ({
  id,
  documentKey: fields && bytes({ ...fields, _id: id }),
})
const plan = (items: readonly Changed[]) => planReads(map, items, ({ documentKey }) => documentKey)

const anyItems = fc
  .array(
    fc.option(fc.tuple(fc.constantFrom(0, 2, 3, 4, 5, 6, null, /x/, undefined), fc.integer({ max: 11, min: 5 }))),
    {
      maxLength: 300,
    },
  )
  .map((some) =>
    some.map((one, id) =>
      changed(id, one && (one[0] === undefined ? { 'b.c': one[1] } : { a: one[0], 'b.c': one[1] })),
    ),
  )

describe('a plan of reads', () => {
  it('property: asks for each document once', () => {
    fc.assert(
      fc.property(anyItems, (items) => {
        const { groups, byId } = plan(items)
        const planned = [...byId, ...groups.flatMap((group) => group.items)].map(({ id }) => id)
        expect(planned.toSorted((one, other) => one - other)).toEqual(items.map(({ id }) => id))
      }),
    )
  })

  it('property: every document meets the conditions of its group, and they select a single shard', () => {
    fc.assert(
      fc.property(anyItems, (items) => {
        for (const { items: members, conditions } of plan(items).groups) {
          const values = members.map(({ documentKey }) =>
            shardKeyValues(bytes(unflattened(BSON.deserialize(documentKey as Buffer, { bsonRegExp: true }))), key),
          )
          for (const [at, { path, values: wanted }] of conditions.entries()) {
            expect(path).toBe(key[at]?.path)
            for (const one of values) expect(wanted.some((value) => value.equals(one[at] as TypedValue))).toBe(true)
            if (at < conditions.length - 1) expect(wanted).toHaveLength(1)
          }
          const shards = new Set(values.map((one) => map.locate(one)?.shard))
          expect(shards.size).toBe(1)
          for (const one of values) expect(map.locate(one)?.fields).toBe(conditions.length)
        }
      }),
    )
  })

  it('reads documents by _id if their key is unknown, or if no filter can express their key values', () => {
    const { byId } = plan([changed(1, null), changed(2, { a: /x/, 'b.c': 1 }), changed(3, { a: 1, 'b.c': 1 })])
    expect(byId.map(({ id }) => id)).toEqual([1, 2])
  })

  it('names at most a thousand documents in a group', () => {
    const items = Array.from({ length: 2_500 }, (_, id) => changed(id, { a: 1, 'b.c': id }))
    expect(plan(items).groups.map((group) => group.items.length)).toEqual([1_000, 1_000, 500])
    expect(plan(items).groups[0]?.conditions).toEqual([{ path: 'a', values: [typed(1)] }])
  })

  it('does not send hundreds of commands for a few documents each', () => {
    const starts = Array.from({ length: 400 }, (_, a) => ({ min: min(a, 5), shard: `s${a % 2}` }))
    const divided = new ChunkMap(key, [{ min: min(new BSON.MinKey(), new BSON.MinKey()), shard: 's1' }, ...starts])
    const small = Array.from({ length: 300 }, (_, id) => changed(id, { a: id, 'b.c': 5 }))
    const large = Array.from({ length: 100 }, (_, id) => changed(1_000 + id, { a: 350, 'b.c': 5 + id }))
    const { groups, byId } = planReads(divided, [...small, ...large], ({ documentKey }) => documentKey)
    expect(groups).toHaveLength(64)
    expect(groups[0]?.items).toHaveLength(100)
    expect(byId).toHaveLength(237)
  })
})

describe('a document that was found', () => {
  it.each<[string, Document, Document, boolean]>([
    ['the values of its event', { a: 1, b: { c: 2 } }, { a: 1, 'b.c': 2 }, true],
    ['no value where its event had none', { a: 1 }, { a: 1 }, true],
    ['null where its event had no value', { a: 1, b: { c: null } }, { a: 1 }, true],
    ['another value', { a: 1, b: { c: 3 } }, { a: 1, 'b.c': 2 }, false],
    ['the same number of another type', { a: 1, b: { c: new BSON.Double(2) } }, { a: 1, 'b.c': 2 }, false],
    ['a value where its event had none', { a: 1, b: { c: 2 } }, { a: 1 }, false],
  ])('has %s', (_what, document, documentKey, expected) => {
    expect(hasKey(bytes({ _id: 1, ...document }), bytes({ ...documentKey, _id: 1 }), key)).toBe(expected)
  })
})

function unflattened(documentKey: Document): Document {
  const { 'b.c': c, ...others } = documentKey
  return c === undefined ? others : { ...others, b: { c } }
}
