import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, vi } from 'vitest'
import { emptyCluster } from './empty-cluster.ts'
import { type Instances, startInstances } from './instances.ts'
import { borrowReplicaSet } from './kept-sets.ts'
import type { ReplicaSet, ReplicaSetOptions } from './replica-set.ts'
import { startTandem, type Tandem, type TandemOptions } from './tandem-process.ts'

export interface PairedSets {
  source: ReplicaSet
  destination: ReplicaSet
  sourceClient: MongoClient
  destinationClient: MongoClient
  /** Starts an instance for the two clusters and waits until it is connected. */
  startInstance(options?: Pick<TandemOptions, 'id' | 'env' | 'entry' | 'faults' | 'extraArgs'>): Promise<Tandem>
  /** Starts several instances of one sync of the two clusters. */
  startInstances(...ids: string[]): Promise<Instances>
}

const connectPolling = { timeout: 30_000, interval: 20 }

/**
 * Provides two replica sets for a test file. They are emptied, and their write blocks lifted, before each test. The
 * fields are set before the first test.
 */
export function pairedSets(options: { source?: ReplicaSetOptions; destination?: ReplicaSetOptions } = {}): PairedSets {
  const pair = {
    startInstance: async (overrides = {}) => {
      const tandem = await startTandem({ cluster0: pair.source.uri, cluster1: pair.destination.uri, ...overrides })
      await vi.waitFor(() => tandem.progress(), connectPolling)
      return tandem
    },
    startInstances: (...ids) => startInstances(ids, { cluster0: pair.source.uri, cluster1: pair.destination.uri }),
  } as PairedSets

  beforeAll(async () => {
    const [source, destination] = await Promise.all([
      borrowReplicaSet(options.source),
      borrowReplicaSet(options.destination),
    ])
    Object.assign(pair, {
      source,
      destination,
      sourceClient: new MongoClient(source.uri),
      destinationClient: new MongoClient(destination.uri),
    })
  })
  afterAll(async () => {
    await Promise.all([pair.sourceClient?.close(), pair.destinationClient?.close()])
    await Promise.all([pair.source?.stop(), pair.destination?.stop()])
  })
  beforeEach(() => emptyBoth(pair))
  return pair
}

export async function emptyBoth(pair: Pick<PairedSets, 'sourceClient' | 'destinationClient'>): Promise<void> {
  const empty = async (client: MongoClient): Promise<void> => {
    await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' })
    await emptyCluster(client)
  }
  await Promise.all([empty(pair.sourceClient), empty(pair.destinationClient)])
}
