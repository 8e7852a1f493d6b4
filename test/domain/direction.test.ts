import { expect, it } from 'vitest'
import type { CatalogueEntry } from '../../src/domain/catalogue.ts'
import { swapConfiguration, swapEntry } from '../../src/domain/direction.ts'
import { configuration } from '../machines/instance-model.ts'

const entry: CatalogueEntry = {
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
  copiedBytes: 5,
  totalCopied: 5,
  endedPartitions: new Set(),
  planned: true,
  hasTombstones: true,
  converging: true,
  shardKey: null,
}

it('turning twice gives what was there', () => {
  expect(swapConfiguration(configuration)).toEqual({ ...configuration, source: 'cluster1', destination: 'cluster0' })
  // Compared as text where a start is identical: the order of fields counts.
  expect(JSON.stringify(swapConfiguration(swapConfiguration(configuration)))).toBe(JSON.stringify(configuration))
  const turned = swapEntry(entry)
  expect(turned).toMatchObject({
    uuid: 'b',
    destinationUUID: 'a',
    name: 'things',
    sourceName: 'things',
    copiedBytes: 5,
  })
  expect(swapEntry(turned)).toMatchObject({ uuid: 'a', destinationUUID: 'b' })
})

it('an entry without counterpart is a bug', () => {
  expect(() => swapEntry({ ...entry, destinationUUID: null })).toThrow(/app\.things/)
})
