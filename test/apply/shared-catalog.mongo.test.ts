import { beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import { SharedCatalog, type SharedCatalogParts } from '../../src/apply/shared-catalog.ts'
import { listCollections } from '../../src/definitions/listing.ts'
import { type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { uuidOfHex } from '../../src/mongo/uuid.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'

/** One replica set is both source and destination. It has no collection with the catalog's UUID of the destination collection. */

const one = oneSet()
let entry: CatalogEntry
let shared: SharedCatalog

beforeEach(async () => {
  await one.client.db('app').createCollection('things')
  onTestFinished(async () => void (await one.client.db('app').dropDatabase()))
  const [listed] = await listCollections(one.cluster, 'app')
  const collection = { uuid: listed?.uuid as string, name: 'things' }
  entry = newEntry('app', collection, { options: [], indexes: [] }, 'copied')
  entry.destinationUUID = uuidOfHex('00000000000040008000000000000000')
  shared = new SharedCatalog({
    ...{ source: one.cluster, destination: one.cluster, context: testContext() },
    metadata: { collections: { load: async () => [entry] } },
    selection: { among: async (_database: string, listed: unknown[]) => listed },
  } as unknown as SharedCatalogParts)
})

/** Lets tandem find at each of these times, in seconds, that the destination does not have the collection. */
async function missedAt(...seconds: number[]): Promise<void> {
  const now = vi.spyOn(performance, 'now')
  try {
    for (const second of seconds) {
      now.mockReturnValue(second * 1_000)
      await shared.locate(entry)
    }
  } finally {
    now.mockRestore()
  }
}

it('refuses a collection that the destination does not have for more than ten seconds', async () => {
  await expect(missedAt(100, 104, 108, 112)).rejects.toMatchObject({ failure: 'DestinationConflict' })
})

it('does not count an absence long ago together with the next one', async () => {
  await missedAt(100, 104, 108, 5_000, 5_004, 5_008)
  await expect(missedAt(5_012)).rejects.toMatchObject({ failure: 'DestinationConflict' })
})
