import { BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import {
  type BuildIndexes,
  buildIndexesModes,
  buildsAfterCopy,
  excludesHashed,
  includedIndexes,
} from '../../src/domain/build-indexes.ts'
import { type IndexSpecification, indexName } from '../../src/domain/definition.ts'
import { readFields } from '../../src/domain/raw-bson.ts'

const index = (name: string, key: Document, options: Document = {}): IndexSpecification =>
  readFields(Buffer.from(BSON.serialize({ v: 2, key, name, ...options })))
const key = (...paths: string[]) => paths.map((path) => ({ path: path.replace('#', ''), hashed: path.endsWith('#') }))

const all = [
  index('plain', { a: 1 }),
  index('text', { _fts: 'text', _ftsx: 1 }),
  index('hashed', { h: 'hashed' }),
  index('hashed of _id', { _id: 'hashed' }),
  index('compound', { a: 1, h: 'hashed' }),
  index('named hashed', { hashed: 1 }),
]
const included = (mode: BuildIndexes, shardKey: ReturnType<typeof key> | null) =>
  includedIndexes(all, mode, shardKey).map(indexName)

describe('the indexes that a sync creates, drops and compares', () => {
  it.each(buildIndexesModes.filter((mode) => !excludesHashed(mode)))('are all with %s', (mode) => {
    expect(includedIndexes(all, mode, null)).toBe(all)
    expect(includedIndexes(all, mode, key('h#'))).toBe(all)
  })

  it.each(['excludeHashed', 'excludeHashedAfterCopy'] as const)('are those without a hashed field with %s', (mode) => {
    expect(included(mode, null)).toEqual(['plain', 'text', 'named hashed'])
  })

  it.each([
    [key('h#'), ['plain', 'text', 'hashed', 'named hashed']],
    [key('_id#'), ['plain', 'text', 'hashed of _id', 'named hashed']],
    [key('a', 'h#'), ['plain', 'text', 'compound', 'named hashed']],
    // The server accepts an index that begins with the shard key, so no hashed index is needed.
    [key('a'), ['plain', 'text', 'compound', 'named hashed']],
    [key('h'), ['plain', 'text', 'named hashed']],
  ])('include a hashed index that the shard key %j needs', (shardKey, names) => {
    expect(included('excludeHashed', shardKey)).toEqual(names)
  })
})

it('afterDataCopy and excludeHashedAfterCopy build the indexes after the copy', () => {
  expect(buildIndexesModes.filter(buildsAfterCopy)).toEqual(['afterDataCopy', 'excludeHashedAfterCopy'])
})
