import { Int32 } from 'mongodb'
import { expect, test } from 'vitest'
import { type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import type { IndexSpecification } from '../../src/domain/definition.ts'
import { indexBuildingOf } from '../../src/domain/index-building.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import { nested, rawDocument } from '../support/bson-values.ts'

const index = (name: string, field: string, traits: Record<string, unknown> = {}): IndexSpecification =>
  readFields(
    rawDocument([
      ['v', new Int32(2)],
      ['key', nested([[field, new Int32(1)]])],
      ['name', name],
      ...Object.entries(traits),
    ]),
  )

function entry(uuid: string, indexes: IndexSpecification[], changes: Partial<CatalogEntry> = {}): CatalogEntry {
  const created = newEntry('app', { uuid, name: uuid }, { options: [], indexes }, 'copied')
  return { ...created, destinationUUID: `destination ${uuid}`, ...changes }
}

const figures = (...[indexesBuilt, totalIndexesToBuild, collectionsFinished, collectionsTotal]: number[]) => ({
  ...{ indexesBuilt, totalIndexesToBuild, collectionsFinished, collectionsTotal },
})
const none = new Map()
const [a, b, c] = [index('a', 'a'), index('b', 'b'), index('c', 'c')]

test('the indexes of all collections are counted, and collections without an index are not', () => {
  const entries = [entry('one', [a, b]), entry('two', [c]), entry('three', [])]
  expect(indexBuildingOf(entries, none, false)).toEqual(figures(3, 3, 2, 2))
  expect(indexBuildingOf([entry('three', [])], none, false)).toBeNull()
})

test('a collection that does not exist on the destination has no index', () => {
  const entries = [entry('one', [a, b], { destinationUUID: null }), entry('two', [c])]
  expect(indexBuildingOf(entries, none, false)).toEqual(figures(1, 3, 1, 2))
})

test('an index that the destination refuses is not built', () => {
  const entries = [entry('one', [a, b], { refusedIndexes: ['b'] })]
  expect(indexBuildingOf(entries, none, false)).toEqual(figures(1, 2, 0, 1))
})

test('an index that the destination is building counts before the catalog contains the index', () => {
  const underWay = new Map([['one', { total: 3, missing: 1 }]])
  expect(indexBuildingOf([entry('one', [a, b]), entry('two', [c])], underWay, false)).toEqual(figures(3, 4, 1, 2))
})

test('if two indexes differ only in a deferred option, the second one counts as built once the commit has restored the option', () => {
  const entries = [entry('one', [a, index('a unique', 'a', { unique: true })])]
  expect(indexBuildingOf(entries, none, false)).toEqual(figures(1, 2, 0, 1))
  expect(indexBuildingOf(entries, none, true)).toEqual(figures(2, 2, 1, 1))
})

test('the indexes of a collection whose builds have not started count as not built, except those of a build in progress', () => {
  const awaiting = entry('one', [a, b], { awaitsIndexes: true })
  expect(indexBuildingOf([awaiting, entry('two', [c])], none, false)).toEqual(figures(1, 3, 1, 2))
  const underWay = new Map([['one', { total: 2, missing: 1 }]])
  expect(indexBuildingOf([awaiting], underWay, false)).toEqual(figures(1, 2, 0, 1))
  expect(indexBuildingOf([{ ...awaiting, awaitsIndexes: false }], none, false)).toEqual(figures(2, 2, 1, 1))
})
