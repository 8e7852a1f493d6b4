import { BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { idElementOf } from '../../src/documents/identity.ts'
import { deleteStatement, keyedUpsert } from '../../src/documents/statements.ts'

const decode = (bytes: Buffer): Document => BSON.deserialize(bytes)
const ask = (document: Document, ...paths: string[]) => {
  const bytes = Buffer.from(BSON.serialize(document))
  const key = paths.map((path) => ({ path, hashed: false }))
  return keyedUpsert(idElementOf(bytes), bytes, key)
}

describe('an upsert into a collection distributed by more than _id', () => {
  it('names the whole key, and removes what stands under the _id with another one', () => {
    const document = { _id: 'x', k: 5, a: { b: 'c' }, n: 1 }
    const statements = ask(document, 'k', 'a.b', 'missing')
    const conditions = { k: { $eq: 5 }, 'a.b': { $eq: 'c' }, missing: { $eq: null } }
    expect(decode(statements?.upsert as Buffer)).toEqual({ q: { _id: 'x', ...conditions }, u: document, upsert: true })
    expect(decode(statements?.removeOthers as Buffer)).toEqual({ q: { _id: 'x', $nor: [conditions] }, limit: 0 })
  })

  it('names the _id once where it is part of the key', () => {
    const statements = ask({ _id: 1, k: 5 }, 'k', '_id')
    expect(decode(statements?.upsert as Buffer)['q']).toEqual({ _id: 1, k: { $eq: 5 } })
  })

  it('is not to be had where a value cannot be named', () => {
    expect(ask({ _id: 1, k: /a/ }, 'k')).toBeNull()
  })
})

it('a delete goes everywhere where one _id may stand on several shards', () => {
  const idElement = idElementOf(Buffer.from(BSON.serialize({ _id: 7 })))
  expect(decode(deleteStatement(idElement))).toEqual({ q: { _id: 7 }, limit: 1 })
  expect(decode(deleteStatement(idElement, true))).toEqual({ q: { _id: 7 }, limit: 0 })
})
