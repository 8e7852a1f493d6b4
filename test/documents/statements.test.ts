import { BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { idElementOf } from '../../src/documents/identity.ts'
import { deleteStatement, keyedDelete, keyedUpsert } from '../../src/documents/statements.ts'
import { shardKeyValues } from '../../src/domain/shard-key.ts'

const decode = (bytes: Buffer): Document => BSON.deserialize(bytes)
const upsertOf = (document: Document, ...paths: string[]) => {
  const bytes = Buffer.from(BSON.serialize(document))
  const key = paths.map((path) => ({ path, hashed: false }))
  return keyedUpsert(idElementOf(bytes), bytes, key)
}

describe('an upsert into a collection whose shard key is not only _id', () => {
  it('filters by the whole shard key, and removes documents with the same _id and another shard key', () => {
    const document = { _id: 'x', k: 5, a: { b: 'c' }, n: 1 }
    const statements = upsertOf(document, 'k', 'a.b', 'missing')
    const conditions = { k: { $eq: 5 }, 'a.b': { $eq: 'c' }, missing: { $eq: null } }
    expect(decode(statements?.upsert as Buffer)).toEqual({ q: { _id: 'x', ...conditions }, u: document, upsert: true })
    expect(decode(statements?.removeOthers as Buffer)).toEqual({ q: { _id: 'x', $nor: [conditions] }, limit: 0 })
  })

  it('contains the _id only once in its filter if the _id is part of the shard key', () => {
    const statements = upsertOf({ _id: 1, k: 5 }, 'k', '_id')
    expect(decode(statements?.upsert as Buffer)['q']).toEqual({ _id: 1, k: { $eq: 5 } })
  })

  it('is null if a filter cannot express a shard key value', () => {
    expect(upsertOf({ _id: 1, k: /a/ }, 'k')).toBeNull()
  })
})

it('a delete by the shard key contains each field of the key once, and is null if a filter cannot express a value', () => {
  const idElement = idElementOf(Buffer.from(BSON.serialize({ _id: 7 })))
  const key = ['k', '_id', 'a.b'].map((path) => ({ path, hashed: false }))
  const deleteOf = (document: Document) =>
    keyedDelete(idElement, shardKeyValues(Buffer.from(BSON.serialize(document)), key), key)
  const q = { _id: 7, k: { $eq: 'x' }, 'a.b': { $eq: null } }
  expect(decode(deleteOf({ _id: 7, k: 'x' }) as Buffer)).toEqual({ q, limit: 1 })
  expect(deleteOf({ _id: 7, k: /a/ })).toBeNull()
})

it('a delete has no limit if an _id may exist on several shards', () => {
  const idElement = idElementOf(Buffer.from(BSON.serialize({ _id: 7 })))
  expect(decode(deleteStatement(idElement))).toEqual({ q: { _id: 7 }, limit: 1 })
  expect(decode(deleteStatement(idElement, true))).toEqual({ q: { _id: 7 }, limit: 0 })
})
