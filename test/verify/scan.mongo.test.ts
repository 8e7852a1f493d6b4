import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { Catalog, type CatalogEntry } from '../../src/domain/catalog.ts'
import { Scan } from '../../src/verify/scan.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

/**
 * More runs of the scan than `missesMax`, the number of misses after which a collection counts as dropped by another
 * program.
 */
const manyRuns = 60

async function bothHave(name: string, done: number[] = []): Promise<{ entry: CatalogEntry; scan: Scan }> {
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client.db('app').collection<{ _id: number }>(name).insertOne({ _id: 1 })
  }
  const entry = await two.entryOf('app', name)
  const catalog = new Catalog()
  catalog.add(entry)
  const scan = new Scan(
    {
      clusters: two,
      metadata: two.metadata,
      context: two.context,
      catalog: () => catalog,
      notBefore: { source: two.source.latest, destination: two.destination.latest },
      suspect: () => {},
      waitForCapacity: async () => {},
      readAhead: () => ({ ranges: 1, batchBytes: 2 * 1024 * 1024 }),
      compareMethod: 'binary',
      done: () => {},
      offered: null,
    },
    done.map((ordinal) => ({ collection: entry.uuid, ordinal, source: 7, destination: 7, bytes: 7 })),
  )
  return { entry, scan }
}

async function runOften(scan: Scan): Promise<void> {
  for (let times = 0; times < manyRuns; times++) {
    expect(await scan.run()).toBe(false)
    await sleep(1)
  }
}

it('waits for the drop event of a collection that both clusters have dropped, however late the event is applied', async () => {
  const { scan } = await bothHave('things')
  for (const client of [two.sourceClient, two.destinationClient]) await client.db('app').dropCollection('things')
  await runOften(scan)
})

it('fails when another program has dropped a collection on the destination', async () => {
  const { scan } = await bothHave('things')
  await two.destinationClient.db('app').dropCollection('things')
  await expect(runOften(scan)).rejects.toMatchObject({ failure: 'DestinationConflict' })
})

it('reads a collection under its new name after the source has renamed it', async () => {
  const { entry, scan } = await bothHave('things')
  await two.sourceClient.db('app').collection('things').rename('renamed')
  expect(await scan.run()).toBe(false)
  expect(entry.sourceName).toBe('renamed')
  expect(await scan.run()).toBe(true)
})

it('does not count finished ranges of an earlier plan, which had more ranges', async () => {
  const { scan } = await bothHave('things', [5])
  expect(await scan.run()).toBe(true)
  expect(scan.documents).toEqual({ source: 1, destination: 1 })
})
