import { Long } from 'mongodb'
import { beforeEach, expect, it } from 'vitest'
import { DeferredOptions } from '../../src/definitions/deferred-options.ts'
import { listCollections, listIndexes } from '../../src/definitions/listing.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'

const one = oneSet()
beforeEach(async () => {
  await one.client.db('app').dropDatabase()
})

const capped = { capped: true, size: 4_096 }

/** Creates a capped collection with a unique index, and returns its entry. */
async function entryOf(): Promise<CatalogEntry> {
  const app = one.client.db('app')
  await app.createCollection('log', capped)
  await app.collection('log').createIndex({ a: 1 }, { unique: true })
  const [listed] = await listCollections(one.cluster, 'app', 'log')
  if (!listed) throw new Error('the collection is not listed')
  const indexes = (await listIndexes(one.cluster, 'app', listed.uuid)) ?? []
  const wanted = { options: listed.options, indexes }
  return { database: 'app', name: 'log', destinationUUID: listed.uuid, wanted } as CatalogEntry
}

const sizeOf = async (name: string): Promise<unknown> => {
  const [listed] = await one.client.db('app').listCollections({ name }).toArray()
  return (listed as { options?: { size?: unknown } })?.options?.size
}

it('options are deferred and restored under the current name of the collection', async () => {
  const entry = await entryOf()
  await one.client.db('app').collection('log').rename('journal')
  const deferred = new DeferredOptions(one.cluster, testContext())
  await deferred.deferAll([entry])
  expect(Number(await sizeOf('journal'))).toBeGreaterThan(Long.fromNumber(1e9).toNumber())
  await deferred.restoreCapped([entry])
  expect(await sizeOf('journal')).toBe(capped.size)
})

it('a dropped collection is skipped, because its drop is applied later', async () => {
  const entry = await entryOf()
  await one.client.db('app').collection('log').drop()
  const deferred = new DeferredOptions(one.cluster, testContext())
  for (const step of ['deferAll', 'restoreCapped', 'prepareIndexes', 'restoreExpiry', 'finishIndexes'] as const) {
    await deferred[step]([entry])
  }
})

const many = 96
const expireAfterSeconds = 3_600

/** Creates collections with a TTL index that does not expire documents yet. */
async function expiring(): Promise<CatalogEntry[]> {
  const app = one.client.db('app')
  const names = Array.from({ length: many }, (_, at) => `of${at}`)
  for (const name of names) await app.collection(name).createIndex({ at: 1 }, { expireAfterSeconds })
  const listed = await listCollections(one.cluster, 'app')
  const [first] = listed
  const indexes = first ? ((await listIndexes(one.cluster, 'app', first.uuid)) ?? []) : []
  const entries = listed.map(({ name, uuid, options }) => {
    return { database: 'app', name, destinationUUID: uuid, wanted: { options, indexes } } as CatalogEntry
  })
  await new DeferredOptions(one.cluster, testContext()).deferAll(entries)
  expect(await restored(entries)).toBe(0)
  return entries
}

async function restored(entries: CatalogEntry[]): Promise<number> {
  const all = await Promise.all(entries.map(({ name }) => one.client.db('app').collection(name).indexes()))
  return all.flat().filter((index) => index['expireAfterSeconds'] === expireAfterSeconds).length
}

/** Makes the server wait before each collMod. */
const delayed = (blockTimeMS: number) =>
  failPoint(one.client, 'failCommand', {
    ...{ failCommands: ['collMod'], appName: 'tandem-test', blockConnection: true, blockTimeMS },
  })

it('many TTL indexes are restored in parallel', async () => {
  const entries = await expiring()
  const blockTimeMS = 500
  await using _slow = await delayed(blockTimeMS)
  const began = performance.now()
  await new DeferredOptions(one.cluster, testContext()).restoreExpiry(entries)
  // If tandem made the changes one after another, they would take 48 s.
  expect(performance.now() - began).toBeLessThan((many * blockTimeMS) / 4)
  expect(await restored(entries)).toBe(many)
})

it('a stop prevents further changes', async () => {
  const entries = await expiring()
  const context = testContext()
  await using slow = await delayed(1_000)
  const restoring = new DeferredOptions(one.cluster, context).restoreExpiry(entries)
  await slow.reached()
  context.stop()
  await expect(restoring).rejects.toBeInstanceOf(StoppedError)
  await slow.release()
  expect(await restored(entries)).toBeLessThanOrEqual(32)
  // A later restore changes the remaining indexes.
  await new DeferredOptions(one.cluster, testContext()).restoreExpiry(entries)
  expect(await restored(entries)).toBe(many)
})
