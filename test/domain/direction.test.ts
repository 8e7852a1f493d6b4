import { expect, it } from 'vitest'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { swapConfiguration, swapEntry } from '../../src/domain/direction.ts'
import { configuration } from '../machines/instance-model.ts'

const entry: CatalogEntry = {
  uuid: 'a',
  database: 'app',
  name: 'things',
  destinationUUID: 'b',
  state: 'copied',
  wanted: { options: [], indexes: [] },
  sourceName: 'elsewhere',
  estimatedBytes: 7,
  estimatedDocuments: 0,
  refusedIndexes: [],
  awaitsIndexes: false,
  copiedBytes: 5,
  totalCopied: 5,
  endedPartitions: new Set(),
  planned: true,
  hasTombstones: true,
  converging: true,
  convergedFrom: 5n,
  shardKey: null,
}

it('swapping the direction twice restores the configuration and the entry', () => {
  expect(swapConfiguration(configuration)).toEqual({ ...configuration, source: 'cluster1', destination: 'cluster0' })
  // Two starts are compared as text, so the order of the fields matters.
  expect(JSON.stringify(swapConfiguration(swapConfiguration(configuration)))).toBe(JSON.stringify(configuration))
  const swapped = swapEntry(entry)
  expect(swapped).toMatchObject({
    uuid: 'b',
    destinationUUID: 'a',
    name: 'things',
    sourceName: 'things',
    copiedBytes: 5,
  })
  expect(swapEntry(swapped)).toMatchObject({ uuid: 'a', destinationUUID: 'b' })
})

it('swapping the entry of a collection that the destination does not have fails an assertion', () => {
  expect(() => swapEntry({ ...entry, destinationUUID: null })).toThrow(/app\.things/)
})
