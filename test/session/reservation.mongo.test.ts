import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../../src/mongo/metadata.ts'
import { OlderMetadata, reservationMS } from '../../src/mongo/older-metadata.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { type BeginSyncParts, beginSync } from '../../src/session/begin-sync.ts'
import { OtherSyncs } from '../../src/session/other-syncs.ts'
import { readClusters } from '../../src/session/start-checks.ts'
import { CleanedPair } from '../clean/cleaned-pair.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { failPoint } from '../support/fail-point.ts'
import { storedConfiguration, storedRecord } from './stored-record.ts'

/** A reservation of the database of earlier releases does not stay forever, however its sync ends. */

const pair = new CleanedPair()
const context = testContext()
let [source, destination] = [] as unknown as [Cluster, Cluster]
beforeAll(() => {
  source = testCluster(pair.sets.source.uri, 'source-under-test')
  destination = testCluster(pair.sets.destination.uri, 'destination-under-test')
})
afterAll(() => Promise.all([source?.close(), destination?.close()]))
beforeEach(() => {
  destination.metadataDatabase = metadataDatabase
})

const configuration: StartConfiguration = {
  ...storedConfiguration,
  ...{ enableUserWriteBlocking: 'none', reversible: false },
  ...{ source: 'cluster0', destination: 'cluster1' },
  ...{ includeNamespaces: [{ database: 'shop' }], excludeNamespaces: null },
}
const recordOf = (database: string): SyncRecord => ({
  ...storedRecord,
  configuration: { ...configuration, includeNamespaces: [{ database }] },
})
const storeSync = async (name: string, database = 'blog') =>
  await new Metadata(destination, context, undefined, `${metadataDatabase}_${name}`).createSync(recordOf(database))

const reserve = async (cluster: Cluster, ageMS = 0): Promise<void> => {
  expect(await new OlderMetadata(cluster, context).reserve()).toBe(true)
  const client = cluster === source ? pair.sets.sourceClient : pair.sets.destinationClient
  const collection = client.db(olderMetadataDatabase).collection<{ _id: string }>('sync')
  await collection.updateOne({ _id: 'sync' }, [{ $set: { reservedAt: { $subtract: ['$$NOW', ageMS] } } }])
}
/** Returns whether the source and the destination hold a reservation, or a collection that a reservation has left. */
const reserved = async () =>
  await Promise.all(
    pair.clients.map(async (client) => (await client.db(olderMetadataDatabase).listCollections().toArray()).length > 0),
  )

it('instances that reserve the name at the same time all succeed', async () => {
  const clusters = Array.from({ length: 8 }, (_, at) => testCluster(pair.sets.destination.uri, `reserves-${at}`))
  const collection = pair.sets.destinationClient.db(olderMetadataDatabase).collection('sync')
  try {
    for (let round = 0; round < 100; round += 1) {
      const reservations = clusters.map((cluster) => new OlderMetadata(cluster, context).reserve())
      expect(await Promise.all(reservations)).toEqual(clusters.map(() => true))
      await collection.deleteMany()
    }
  } finally {
    await Promise.all(clusters.map((cluster) => cluster.close()))
  }
})

describe('an expired reservation', () => {
  const watch = (): void => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const selection = new Selection(source, configuration)
    const others = new OtherSyncs({
      record: { ...storedRecord, configuration },
      source,
      destination,
      context,
      selection: () => selection,
    })
    others.begin(() => {})
    vi.advanceTimersByTime(30_000)
    others.end()
    vi.useRealTimers()
  }

  it('is removed on both clusters by a sync that runs', async () => {
    for (const cluster of [source, destination]) await reserve(cluster, reservationMS)
    watch()
    await expect.poll(reserved).toEqual([false, false])
  })

  it('is removed on the destination if the user may not remove the reservation on the source', async () => {
    for (const cluster of [source, destination]) await reserve(cluster, reservationMS)
    const data = { failCommands: ['listCollections'], errorCode: 13, appName: 'source-under-test' }
    await using denied = await failPoint(pair.sets.sourceClient, 'failCommand', data)
    watch()
    await Promise.all([denied.reached(), expect.poll(reserved).toEqual([true, false])])
  })

  it('is removed on both clusters by clean, whatever the name of its sync', async () => {
    for (const cluster of [source, destination]) await reserve(cluster, reservationMS)
    await storeSync('other')
    const lines = [
      'sync: none is stored on these clusters',
      `remove: the reservation of ${olderMetadataDatabase} on cluster0`,
      `remove: the reservation of ${olderMetadataDatabase} on cluster1`,
    ]
    expect(await pair.clean({ syncName: 'shop' })).toMatchObject({ code: 1, lines: [...lines, expect.anything()] })
    expect(await reserved()).toEqual([true, true])
    expect(await pair.clean({ syncName: 'shop', yes: true })).toMatchObject({ code: 0 })
    expect(await reserved()).toEqual([false, false])
  })

  it('is left by clean with a sync name if the user may not read the reservation', async () => {
    await reserve(destination, reservationMS)
    const data = { failCommands: ['find'], errorCode: 13, namespace: `${olderMetadataDatabase}.sync` }
    await using _ = await failPoint(pair.sets.destinationClient, 'failCommand', data)
    const lines = ['sync: none is stored on these clusters', 'nothing to clean up']
    expect(await pair.clean({ syncName: 'shop', yes: true })).toMatchObject({ code: 0, lines })
  })
})

describe('a reservation that has not expired', () => {
  it('is left by clean if another sync is stored on the cluster, and removed otherwise', async () => {
    await storeSync('other')
    await reserve(destination)
    expect(await pair.clean({ syncName: 'shop', yes: true })).toMatchObject({ code: 0 })
    expect(await reserved()).toEqual([false, true])
    await pair.sets.destinationClient.db(`${metadataDatabase}_other`).dropDatabase()
    expect(await pair.clean({ syncName: 'shop', yes: true })).toMatchObject({ code: 0 })
    expect(await reserved()).toEqual([false, false])
  })
})

describe('the reservation of a start that fails', () => {
  const begin = async (whenReserved: () => Promise<unknown> = async () => {}) => {
    destination.metadataDatabase = `${metadataDatabase}_shop`
    const data = { failCommands: ['appendOplogNote'], errorCode: 13, appName: 'source-under-test' }
    await using _ = await failPoint(pair.sets.sourceClient, 'failCommand', data)
    const parts: Partial<BeginSyncParts> = {
      clusters: { cluster0: source, cluster1: destination },
      ...{ context, redis: false, findStored: async () => null },
    }
    const checked = await readClusters(configuration, source, destination)
    await whenReserved()
    await beginSync(checked, parts as BeginSyncParts)
  }

  it('is removed', async () => {
    await expect(begin()).rejects.toMatchObject({ code: 13 })
    expect(await reserved()).toEqual([false, false])
  })

  it('is left if another sync is stored, which removes it later', async () => {
    await expect(begin(() => storeSync('other'))).rejects.toMatchObject({ code: 13 })
    expect(await reserved()).toEqual([false, true])
  })
})
