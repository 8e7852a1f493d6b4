import { BSON, BSONRegExp, type Document, Int32, MinKey } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { readFields } from '../../src/domain/raw-bson.ts'
import {
  canBecomeKey,
  isAddressable,
  isKeyed,
  isPrefix,
  requestedShardKey,
  sameShardKey,
  shardKeyValues,
  showShardKey,
  supportsShardKey,
  toShardKey,
} from '../../src/domain/shard-key.ts'

const bytes = (document: Document): Buffer => Buffer.from(BSON.serialize(document))
const key = (...paths: string[]) => paths.map((path) => ({ path: path.replace('#', ''), hashed: path.endsWith('#') }))
const typed = (value: unknown): Buffer => {
  const document = bytes({ v: value })
  return Buffer.concat([document.subarray(4, 5), document.subarray(7, document.length - 1)])
}

describe('a collection on the destination', () => {
  it.each([
    ['is unsharded, as wanted', null, null, true],
    ['has the wanted shard key', key('a', 'b#'), key('a', 'b#'), true],
    ['has a prefix of the wanted shard key', key('a'), key('a', 'b#'), true],
    ['has more fields than the wanted shard key', key('a', 'b'), key('a'), false],
    ['has the fields in another order', key('a', 'b'), key('b', 'a'), false],
    ['has a hashed field instead of a range', key('a#'), key('a'), false],
    ['is unsharded, but must be sharded', null, key('a'), false],
    ['is sharded, but must be unsharded', key('a'), null, false],
  ])('that %s: can get the wanted shard key in place or not', (_what, existing, wanted, expected) => {
    expect(canBecomeKey(existing, wanted)).toBe(expected)
  })
})

describe('the values of a shard key', () => {
  it('are the bytes of the document’s fields, and null for a missing field', () => {
    const document = bytes({ _id: 1, k: 'é', a: { b: { c: 2.5 } }, n: null })
    expect(shardKeyValues(document, key('k', 'a.b.c', 'a.x', 'n', 'k.x', 'q'))).toEqual(
      ['é', 2.5, null, null, null, null].map(typed),
    )
  })

  it('are found under non-ASCII names', () => {
    expect(shardKeyValues(bytes({ größe: { größer: 7 } }), key('größe.größer'))).toEqual([typed(7)])
  })

  it.each([
    ['a regular expression', bytes({ v: new BSONRegExp('a') }), false],
    ['a document with an operator’s name', bytes({ v: { $gt: 1 } }), false],
    ['a document', bytes({ v: { x: 1 } }), true],
    ['MinKey', bytes({ v: new MinKey() }), true],
    ['an array', bytes({ v: [1] }), false],
  ])('can or cannot be matched by a query: %s', (_what, document, addressable) => {
    expect(isAddressable(shardKeyValues(document, key('v'))[0] as Buffer)).toBe(addressable)
  })
})

describe('a shard key', () => {
  it('is converted from the form that the server stores and from the form of a start request', () => {
    expect(toShardKey(readFields(bytes({ k: 1, 'a.b': 'hashed' })))).toEqual(key('k', 'a.b#'))
    expect(requestedShardKey([{ k: 1 }, { 'a.b': 'hashed' }])).toEqual(key('k', 'a.b#'))
    expect(showShardKey(key('k', 'a.b#'))).toBe('{"k": 1, "a.b": "hashed"}')
  })

  it('equals another one with the same names and kinds in the same order', () => {
    expect(sameShardKey(key('k', 'z'), key('k', 'z'))).toBe(true)
    for (const other of [key('z', 'k'), key('k'), key('k', 'z#'), null]) {
      expect(sameShardKey(key('k', 'z'), other)).toBe(false)
    }
    expect(sameShardKey(null, null)).toBe(true)
    expect(isPrefix(key('k'), key('k', 'z'))).toBe(true)
    expect(isPrefix(key('k', 'z'), key('k'))).toBe(false)
  })

  it('allows the same _id on several shards unless the shard key is _id itself', () => {
    expect([key('_id'), key('_id#'), null].map((shardKey) => isKeyed({ shardKey }))).toEqual([false, false, false])
    expect([key('k'), key('_id', 'k'), key('_id.x')].map((shardKey) => isKeyed({ shardKey }))).toEqual([
      true,
      true,
      true,
    ])
  })
})

describe('an index supports a shard key', () => {
  const supports = (specification: Document, ...paths: string[]) =>
    supportsShardKey(readFields(bytes({ v: new Int32(2), name: 'x', ...specification })), key(...paths))

  it('if the key of the index begins with the shard key', () => {
    expect(supports({ key: { k: 1, z: -1 } }, 'k')).toBe(true)
    expect(supports({ key: { k: 1 } }, 'k', 'z')).toBe(false)
    expect(supports({ key: { k: -1 } }, 'k')).toBe(false)
    expect(supports({ key: { k: 'hashed' } }, 'k')).toBe(false)
    expect(supports({ key: { k: 'hashed', z: 1 } }, 'k#')).toBe(true)
  })

  it('unless the index omits documents or has a collation', () => {
    expect(supports({ key: { k: 1 }, sparse: true }, 'k')).toBe(false)
    expect(supports({ key: { k: 1 }, partialFilterExpression: { k: 1 } }, 'k')).toBe(false)
    expect(supports({ key: { k: 1 }, collation: { locale: 'en' } }, 'k')).toBe(false)
    expect(supports({ key: { k: 1 }, unique: true, hidden: true }, 'k')).toBe(true)
  })
})
