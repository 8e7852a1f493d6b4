import { BSON, type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, expect } from 'vitest'
import { listCollections } from '../../src/definitions/listing.ts'
import { fold, type Identity, identityKey } from '../../src/documents/identity.ts'
import { readByIds } from '../../src/documents/read-documents.ts'
import { reconcileDocuments } from '../../src/documents/reconcile-documents.ts'
import { chunkMapOf } from '../../src/documents/source-chunks.ts'
import { DocumentWriter } from '../../src/documents/write-identities.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { type ChangeEvent, parseChangeEvent } from '../../src/domain/change-event.ts'
import { bsonType } from '../../src/domain/raw-bson.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import { readChangeStream } from '../../src/mongo/change-stream.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { AskedDocuments } from '../support/asked-documents.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { until } from '../support/until.ts'

export type Key = Record<string, 1 | 'hashed'>

/** Adds the numbers of all shards. */
export const sum = (counts: number[]): number => counts.reduce((one, other) => one + other, 0)

/** A sharded cluster that is both source and destination, in the collections `source` and `copy`. Tests apply change events to the copy. */
export class TargetedPair {
  sharded!: ShardedCluster
  cluster!: Cluster
  client!: MongoClient
  /** Counts the documents that are requested from the source of the last `pair`. */
  asked!: AskedDocuments
  #writer!: DocumentWriter

  constructor(name: string) {
    beforeAll(async () => {
      this.sharded = await startShardedCluster({ shards: 3 })
      this.cluster = testCluster(this.sharded.uri, name)
      await readFacts(this.cluster)
      this.client = new MongoClient(this.sharded.uri)
      this.#writer = new DocumentWriter(this.cluster, async () => false)
    })
    afterAll(async () => {
      await Promise.all([this.cluster?.close(), this.client?.close()])
      await this.sharded?.stop()
    })
    beforeEach(() => emptyCluster(this.client))
  }

  readonly on = (name: string): ReturnType<typeof rowsOf> => rowsOf(this.client, name)
  readonly content = async (name: string): Promise<string[]> => {
    const all = await this.on(name).find({}, { raw: true }).toArray()
    return all.map((document) => Buffer.from(document as unknown as Uint8Array).toString('hex')).sort()
  }

  async #create(name: string, key: Key, splitAt: unknown[]): Promise<string> {
    const admin = this.client.db('admin')
    await admin.command({ enableSharding: 'app', primaryShard: this.sharded.shards[0]?.name })
    await admin.command({ shardCollection: `app.${name}`, key })
    const [first, ...others] = Object.keys(key) as [string, ...string[]]
    for (const [at, value] of splitAt.entries()) {
      const middle = { [first]: value, ...Object.fromEntries(others.map((path) => [path, new BSON.MinKey()])) }
      await this.sharded.split(`app.${name}`, middle)
      await this.sharded.moveChunk(`app.${name}`, middle, at + 1)
    }
    const [listed] = await listCollections(this.cluster, 'app', name)
    return listed?.uuid ?? ''
  }

  /** Creates two equal collections. The first one is the source. Resolves when the chunks of the source are known. */
  readonly pair = async (key: Key, splitAt: unknown[], documents: Document[]): Promise<CatalogEntry> => {
    const uuid = await this.#create('source', key, splitAt)
    const destinationUUID = await this.#create('copy', key, splitAt)
    for (const name of ['source', 'copy']) await this.on(name).insertMany(documents as Row[])
    const entry = {
      ...{ uuid, database: 'app', name: 'copy', sourceName: 'source', destinationUUID, state: 'copied' },
      wanted: { options: [], indexes: [] },
      shardKey: requestedShardKey(Object.entries(key).map(([path, direction]) => ({ [path]: direction }))),
    } as unknown as CatalogEntry
    await until('the chunks of the source', async () => {
      if (!chunkMapOf(this.cluster, entry)) throw new Error('not known yet')
    })
    this.asked = await AskedDocuments.from(this.sharded, 'source')
    return entry
  }

  /** Runs `work`, and returns the change events of the source that it causes, as tandem reads them. */
  readonly changes = async ({ uuid }: CatalogEntry, work: () => Promise<unknown>): Promise<ChangeEvent[]> => {
    await appendOplogNote(this.cluster, 'test')
    const start = this.cluster.latest
    // After a shard has answered this read, its writes have a later cluster time.
    const collection = { database: 'app', name: 'source', uuid }
    for await (const _ of readByIds(this.cluster, collection, [Buffer.from([bsonType.null])], start));
    await work()
    await appendOplogNote(this.cluster, 'test')
    const end = this.cluster.latest
    const events: ChangeEvent[] = []
    for await (const batch of readChangeStream(this.cluster, { kind: 'time', time: start }, testContext())) {
      events.push(...batch.events.map(parseChangeEvent))
      if (batch.position.time > end) break
    }
    return events.filter((event) => event.uuid === uuid && event.time > start)
  }

  /** Applies the changes as one batch. Returns how many documents each shard was asked for. */
  readonly apply = async (
    entry: CatalogEntry,
    events: ChangeEvent[],
    locate?: (entry: CatalogEntry) => Promise<boolean>,
    isRetried = false,
  ): Promise<number[]> => {
    const identities = new Map<string, Identity>()
    let notBefore = 0n
    for (const event of events) {
      if (event.uuid !== entry.uuid || !event.idElement) continue
      const key = identityKey(event.idElement)
      identities.set(key, fold(identities.get(key), event, event.idElement))
      if (event.time > notBefore) notBefore = event.time
    }
    const context = testContext()
    const metadata = new Metadata(this.cluster, context)
    const clusters = { source: this.cluster, destination: this.cluster }
    const dependencies = {
      ...clusters,
      metadata,
      writer: this.#writer,
      context,
      nextOrder: () => 1,
      ...(locate && { locate }),
    }
    this.asked.restart()
    await reconcileDocuments(dependencies, entry, identities, notBefore)
    expect(context.retried.length > 0).toBe(isRetried)
    const counts = await this.asked.read()
    return counts.map(({ documents }) => documents)
  }
}
