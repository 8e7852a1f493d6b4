import { BSON, BSONRegExp, type Document, Int32, MinKey } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { readFields } from '../../src/domain/raw-bson.ts'
import {
  askedShardKey,
  isAddressable,
  isKeyed,
  isPrefix,
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

describe('the values of a shard key', () => {
  it('are the document’s own bytes, and null where a field is missing', () => {
    const document = bytes({ _id: 1, k: 'é', a: { b: { c: 2.5 } }, n: null })
    expect(shardKeyValues(document, key('k', 'a.b.c', 'a.x', 'n', 'k.x', 'q'))).toEqual(
      ['é', 2.5, null, null, null, null].map(typed),
    )
  })

  it('are found under names beyond ASCII', () => {
    expect(shardKeyValues(bytes({ größe: { größer: 7 } }), key('größe.größer'))).toEqual([typed(7)])
  })

  it.each([
    ['a pattern', bytes({ v: new BSONRegExp('a') }), false],
    ['an operator’s name', bytes({ v: { $gt: 1 } }), false],
    ['a document', bytes({ v: { x: 1 } }), true],
    ['MinKey', bytes({ v: new MinKey() }), true],
    ['an array', bytes({ v: [1] }), false],
  ])('may be named by a filter or not: %s', (_what, document, addressable) => {
    expect(isAddressable(shardKeyValues(document, key('v'))[0] as Buffer)).toBe(addressable)
  })
})

describe('a shard key', () => {
  it('is read from what the server stores and from what is asked', () => {
    expect(toShardKey(readFields(bytes({ k: 1, 'a.b': 'hashed' })))).toEqual(key('k', 'a.b#'))
    expect(askedShardKey([{ k: 1 }, { 'a.b': 'hashed' }])).toEqual(key('k', 'a.b#'))
    expect(showShardKey(key('k', 'a.b#'))).toBe('{"k": 1, "a.b": "hashed"}')
  })

  it('is the same by order, name and kind', () => {
    expect(sameShardKey(key('k', 'z'), key('k', 'z'))).toBe(true)
    for (const other of [key('z', 'k'), key('k'), key('k', 'z#'), null]) {
      expect(sameShardKey(key('k', 'z'), other)).toBe(false)
    }
    expect(sameShardKey(null, null)).toBe(true)
    expect(isPrefix(key('k'), key('k', 'z'))).toBe(true)
    expect(isPrefix(key('k', 'z'), key('k'))).toBe(false)
  })

  it('lets one _id stand on several shards unless it is the _id itself', () => {
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

  it('that its own key begins with', () => {
    expect(supports({ key: { k: 1, z: -1 } }, 'k')).toBe(true)
    expect(supports({ key: { k: 1 } }, 'k', 'z')).toBe(false)
    expect(supports({ key: { k: -1 } }, 'k')).toBe(false)
    expect(supports({ key: { k: 'hashed' } }, 'k')).toBe(false)
    expect(supports({ key: { k: 'hashed', z: 1 } }, 'k#')).toBe(true)
  })

  it('unless documents are missing from it, or compare otherwise', () => {
    expect(supports({ key: { k: 1 }, sparse: true }, 'k')).toBe(false)
    expect(supports({ key: { k: 1 }, partialFilterExpression: { k: 1 } }, 'k')).toBe(false)
    expect(supports({ key: { k: 1 }, collation: { locale: 'en' } }, 'k')).toBe(false)
    expect(supports({ key: { k: 1 }, unique: true, hidden: true }, 'k')).toBe(true)
  })
})
