import { Long } from 'mongodb'
import { beforeEach, expect, it } from 'vitest'
import type { CatalogueEntry } from '../../src/domain/catalogue.ts'
import { DestinationTraits } from '../../src/mongo/destination-traits.ts'
import { listCollections, listIndexes } from '../../src/mongo/listing.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()
beforeEach(async () => {
  await one.client.db('app').dropDatabase()
})

const capped = { capped: true, size: 4_096 }

/** A capped collection with a unique index, as it stands. */
async function entryOf(): Promise<CatalogueEntry> {
  const app = one.client.db('app')
  await app.createCollection('log', capped)
  await app.collection('log').createIndex({ a: 1 }, { unique: true })
  const [listed] = await listCollections(one.cluster, 'app', 'log')
  if (!listed) throw new Error('it was just created')
  const indexes = (await listIndexes(one.cluster, 'app', listed.uuid)) ?? []
  const wanted = { options: listed.options, indexes }
  return { database: 'app', name: 'log', destinationUUID: listed.uuid, wanted } as CatalogueEntry
}

const sizeOf = async (name: string): Promise<unknown> => {
  const [listed] = await one.client.db('app').listCollections({ name }).toArray()
  return (listed as { options?: { size?: unknown } })?.options?.size
}

it('are held back, and put back, under the name the collection has now', async () => {
  const entry = await entryOf()
  await one.client.db('app').collection('log').rename('journal')
  const traits = new DestinationTraits(one.cluster, testContext())
  await traits.holdBack([entry])
  expect(Number(await sizeOf('journal'))).toBeGreaterThan(Long.fromNumber(1e9).toNumber())
  await traits.restoreCapped([entry])
  expect(await sizeOf('journal')).toBe(capped.size)
})

it('of a collection that is gone are nobody’s: its drop is still to be followed', async () => {
  const entry = await entryOf()
  await one.client.db('app').collection('log').drop()
  const traits = new DestinationTraits(one.cluster, testContext())
  for (const step of ['holdBack', 'restoreCapped', 'prepareIndexes', 'restoreExpiry', 'finishIndexes'] as const) {
    await traits[step]([entry])
  }
})
