import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, expect } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { failed } from './commits.ts'
import { compareBoth } from './compare-both.ts'
import { distributeChunks, type ShardKeyPattern } from './distribute-chunks.ts'
import { emptyCluster } from './empty-cluster.ts'
import { borrowReplicaSet } from './kept-sets.ts'
import type { ReplicaSet } from './replica-set.ts'
import { rowsOf } from './rows.ts'
import { type ShardedCluster, type ShardedClusterOptions, startShardedCluster } from './sharded-cluster.ts'
import { type CommandAnswer, startTandem, type Tandem } from './tandem-process.ts'

/**
 * The clusters of a test file; at least one of them is sharded. They are emptied, and their write blocks lifted, before
 * each test.
 */
export class ShardedPair {
  /** The sharded source. It is unset if the source is a replica set, which is then `sourceSet`. */
  source!: ShardedCluster
  /** The sharded destination. It is unset if the destination is a replica set, which is then `destinationSet`. */
  destination!: ShardedCluster
  sourceSet!: ReplicaSet
  destinationSet!: ReplicaSet
  sourceClient!: MongoClient
  destinationClient!: MongoClient
  readonly #tandems: Tandem[] = []

  /** Registers hooks, so it must run where vitest allows that. */
  constructor(
    source: ShardedClusterOptions | 'replicaSet' | 'replicaSet 5.0',
    destination: ShardedClusterOptions | 'replicaSet' = {},
  ) {
    beforeAll(async () => {
      const [from, to] = await Promise.all([
        typeof source === 'string'
          ? borrowReplicaSet(source === 'replicaSet' ? {} : { version: '5.0' })
          : startShardedCluster(source),
        destination === 'replicaSet' ? borrowReplicaSet() : startShardedCluster(destination),
      ])
      if ('shards' in from) this.source = from
      else this.sourceSet = from
      if ('shards' in to) this.destination = to
      else this.destinationSet = to
      this.sourceClient = new MongoClient(from.uri, { retryWrites: typeof source !== 'string' })
      this.destinationClient = new MongoClient(to.uri)
    })
    afterAll(async () => {
      await Promise.all([this.sourceClient?.close(), this.destinationClient?.close()])
      await Promise.all([this.source?.stop(), this.sourceSet?.stop()])
      await Promise.all([this.destination?.stop(), this.destinationSet?.stop()])
    })
    beforeEach(async () => {
      await Promise.all(this.#tandems.splice(0).map((tandem) => tandem.stop()))
      for (const client of [this.sourceClient, this.destinationClient]) await emptyCluster(client)
    })
  }

  get sourceUri(): string {
    return (this.source ?? this.sourceSet).uri
  }

  get destinationUri(): string {
    return (this.destination ?? this.destinationSet).uri
  }

  async startTandem(options: { env?: Record<string, string> } = {}): Promise<Tandem> {
    const tandem = await startTandem({ cluster0: this.sourceUri, cluster1: this.destinationUri, ...options })
    this.#tandems.push(tandem)
    await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).not.toBeNull()
    return tandem
  }

  /** Starts an instance and a sync from source to destination. */
  async startSync(options: Record<string, unknown> = {}): Promise<Tandem> {
    const tandem = await this.startTandem()
    expect(await start(tandem, options)).toMatchObject({ status: 200, body: { success: true } })
    return tandem
  }

  /** @param shardKeys the expected shard keys by namespace, if they are not those of the source */
  async expectEqual(shardKeys?: Record<string, string>): Promise<void> {
    const expected = shardKeys ?? (this.destination ? undefined : {})
    const { differences } = await compareBoth(this.sourceUri, this.destinationUri, expected && { shardKeys: expected })
    expect(differences).toEqual([])
    if (this.destination) await this.expectOwned()
  }

  /**
   * Checks with direct reads that each shard of the destination holds only documents that it owns, without orphans. Several
   * documents with one `_id` are found by the comparison with the source.
   */
  async expectOwned(): Promise<void> {
    const config = this.destinationClient.db('config')
    for (const { _id: name } of await config.collection<{ _id: string }>('collections').find().toArray()) {
      const [database, collection] = [name.slice(0, name.indexOf('.')), name.slice(name.indexOf('.') + 1)]
      if (database === 'config') continue
      const there = this.destinationClient.db(database).collection(collection)
      const owned = await there.find({}, { projection: { _id: 1 } }).toArray()
      let stored = 0
      for (const shard of this.destination.shards) {
        await using direct = await MongoClient.connect(shard.uri)
        stored += await direct.db(database).collection(collection).countDocuments()
      }
      expect({ name, stored }).toEqual({ name, stored: owned.length })
    }
  }

  /**
   * Returns the number of documents of a collection of `app` on each shard, including orphans, in the order of the
   * shards.
   */
  async spread(name: string, cluster = this.destination): Promise<number[]> {
    return await Promise.all(
      cluster.shards.map(async (shard) => {
        await using direct = await MongoClient.connect(shard.uri)
        return await direct.db('app').collection(name).countDocuments()
      }),
    )
  }
}

export function start(tandem: Tandem, options: Record<string, unknown> = {}): Promise<CommandAnswer> {
  return tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...options })
}

/** Waits until a running sync fails, and returns its failure. */
export async function failure(tandem: Tandem): Promise<NonNullable<Progress['failure']>> {
  return (await failed(tandem)).failure as NonNullable<Progress['failure']>
}

/**
 * Creates a sharded collection in `app`, splits it at values of its shard key's first field, and distributes the chunks
 * to the shards in turn.
 */
export async function shardedCollection(
  cluster: ShardedCluster,
  client: MongoClient,
  name: string,
  key: ShardKeyPattern,
  splitPoints: readonly unknown[] = [],
): Promise<ReturnType<typeof rowsOf>> {
  await client.db('admin').command({ shardCollection: `app.${name}`, key })
  await distributeChunks(cluster, `app.${name}`, key, splitPoints)
  return rowsOf(client, name)
}
