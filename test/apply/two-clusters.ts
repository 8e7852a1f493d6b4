import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, expect } from 'vitest'
import { listCollections, listIndexes } from '../../src/definitions/listing.ts'
import { fold, type Identity, identityKey, unread } from '../../src/documents/identity.ts'
import { type Identities, reconcileDocuments } from '../../src/documents/reconcile-documents.ts'
import type { ReconcileDependencies } from '../../src/documents/reconcile-steps.ts'
import { DocumentWriter } from '../../src/documents/write-identities.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import type { ChangeEvent } from '../../src/domain/change-event.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { type TestContext, testCluster, testContext } from '../mongo/clusters.ts'
import { compareClusters } from '../support/compare.ts'
import { databaseNames } from '../support/databases.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'

export const sourceName = 'source-under-test'
export const destinationName = 'destination-under-test'

/** A source, a destination, and the dependencies that their reconciliation needs. */
export class TwoClusters {
  readonly source: Cluster
  readonly destination: Cluster
  readonly sourceClient: MongoClient
  readonly destinationClient: MongoClient
  readonly metadata: Metadata
  readonly context: TestContext = testContext()
  dropVanishedIndexes: (entry: CatalogEntry) => Promise<boolean> = async () => false
  readonly #sets: [ReplicaSet, ReplicaSet]
  /** The cluster time of the source at the last reconciliation. */
  asOf: ClusterTime = 0n
  #order = 0

  private constructor(sets: [ReplicaSet, ReplicaSet]) {
    this.#sets = sets
    this.source = testCluster(sets[0].uri, sourceName)
    this.destination = testCluster(sets[1].uri, destinationName)
    this.sourceClient = new MongoClient(sets[0].uri)
    this.destinationClient = new MongoClient(sets[1].uri)
    this.metadata = new Metadata(this.destination, this.context)
  }

  static async start(): Promise<TwoClusters> {
    return new TwoClusters(await Promise.all([borrowReplicaSet(), borrowReplicaSet()]))
  }

  async stop(): Promise<void> {
    const clients = [this.source, this.destination, this.sourceClient, this.destinationClient]
    await Promise.all(clients.map((client) => client.close()))
    await Promise.all(this.#sets.map((set) => set.stop()))
  }

  get dependencies(): ReconcileDependencies {
    return {
      source: this.source,
      destination: this.destination,
      metadata: this.metadata,
      writer: new DocumentWriter(this.destination, (entry) => this.dropVanishedIndexes(entry)),
      context: this.context,
      nextOrder: (count) => {
        this.#order += count
        return this.#order - count
      },
    }
  }

  /** Returns the catalog entry of a collection that exists on both clusters. */
  async entryOf(database: string, name: string, state: CatalogEntry['state'] = 'copied'): Promise<CatalogEntry> {
    const [source, destination] = await Promise.all(
      [this.source, this.destination].map(async (cluster) =>
        (await listCollections(cluster, database)).find((one) => one.name === name),
      ),
    )
    if (!source || !destination) throw new Error(`${database}.${name} does not exist on both clusters`)
    return {
      uuid: source.uuid,
      database,
      name,
      sourceName: name,
      destinationUUID: destination.uuid,
      state,
      wanted: { options: source.options, indexes: (await listIndexes(this.source, database, source.uuid)) ?? [] },
      estimatedBytes: 0,
      estimatedDocuments: 0,
      refusedIndexes: [],
      awaitsIndexes: false,
      copiedBytes: 0,
      totalCopied: 0,
      endedPartitions: new Set(),
      planned: true,
      hasTombstones: false,
      converging: false,
      convergedFrom: null,
      shardKey: null,
    }
  }

  /** Reconciles the documents as of the current cluster time of the source. */
  async reconcile(entry: CatalogEntry, identities: Identities): Promise<void> {
    await appendOplogNote(this.source, 'test')
    this.asOf = this.source.latest
    await reconcileDocuments(this.dependencies, entry, identities, this.asOf)
  }

  async expectEqual(database: string): Promise<void> {
    const comparison = await compareClusters(this.#sets[0].uri, this.#sets[1].uri, {
      ignoreDatabases: await this.#databasesBut(database),
    })
    expect(comparison.differences).toEqual([])
  }

  async #databasesBut(database: string): Promise<string[]> {
    const lists = await Promise.all(
      [this.sourceClient, this.destinationClient].map((client) => databaseNames(client, [database])),
    )
    return lists.flat()
  }
}

/** Starts both clusters before the first test of a file, and empties them before each test. */
export function emptiedClusters(take: (two: TwoClusters) => void): void {
  let two: TwoClusters | undefined
  beforeAll(async () => {
    two = await TwoClusters.start()
    take(two)
  })
  afterAll(() => two?.stop())
  beforeEach(async () => {
    if (two) await Promise.all([emptyCluster(two.sourceClient), emptyCluster(two.destinationClient)])
  })
}

/** Folds events into one batch, as a lane does. */
export function folded(events: ChangeEvent[]): Identities {
  const identities: Identities = new Map()
  for (const event of events) {
    if (!event.idElement) continue
    const key = identityKey(event.idElement)
    identities.set(key, fold(identities.get(key), event, event.idElement))
  }
  return identities
}

/** Returns identities of documents whose `_id` is known and whose content has not been read. */
export function identitiesOf(idElements: Buffer[]): Identities {
  return new Map(idElements.map((idElement): [string, Identity] => [identityKey(idElement), unread(idElement)]))
}
