import { expect, it } from 'vitest'
import { createdAgain, droppedBy } from '../../src/apply/created-again.ts'
import { Catalog, type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { parseChangeEvent } from '../../src/domain/change-event.ts'
import { nested, rawDocument } from '../support/bson-values.ts'

/** Drop events without a UUID: all of them from a source of 5.0, and those of views from a later source. */

const entryOf = (name: string): CatalogEntry => ({
  ...newEntry('app', { uuid: name, name }, { options: [], indexes: [] }, 'copied'),
  destinationUUID: `${name} on the destination`,
})

function catalogOf(...entries: CatalogEntry[]): Catalog {
  const catalog = new Catalog()
  for (const entry of entries) catalog.add(entry)
  return catalog
}

const dropOf = (coll: string, db = 'app') => ({
  ...parseChangeEvent(
    rawDocument([
      ['operationType', 'drop'],
      ['ns', nested(Object.entries({ db, coll }))],
    ]),
  ),
  time: 5n,
})

it('a drop without a UUID belongs to the collection of that name, and tandem converges the collection if the destination still has it', () => {
  const catalog = catalogOf(entryOf('things'), entryOf('others'))
  const dropped = droppedBy([dropOf('things'), dropOf('others', 'elsewhere'), dropOf('a view')], catalog, true)
  expect(dropped.map(({ entry }) => entry.name)).toEqual(['things'])
  expect(createdAgain(dropped, catalog)).toEqual(new Map([['things', 'app.things']]))
})

it('nothing converges if the destination has dropped or replaced the collection, or if the collection has converged after the drop', () => {
  const before = catalogOf(entryOf('things'))
  const dropped = droppedBy([dropOf('things')], before, true)
  const other = { ...entryOf('things'), destinationUUID: 'another' }
  for (const entry of [other, { ...entryOf('things'), convergedFrom: 5n }]) {
    expect(createdAgain(dropped, catalogOf(entry))).toEqual(new Map())
  }
  expect(createdAgain(dropped, catalogOf())).toEqual(new Map())
  expect(createdAgain(dropped, catalogOf({ ...entryOf('things'), convergedFrom: 4n })).size).toBe(1)
})

it('a dropped collection is omitted when the destination does not have it yet', () => {
  expect(droppedBy([dropOf('things')], catalogOf({ ...entryOf('things'), destinationUUID: null }), true)).toEqual([])
})

it('from 6.0 on, a drop without a UUID belongs to a view, and not to a collection that later got the name of the view', () => {
  const catalog = catalogOf(entryOf('things'))
  expect(droppedBy([dropOf('things')], catalog, false)).toEqual([])
})
