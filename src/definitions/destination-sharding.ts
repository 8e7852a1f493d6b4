import type { Document } from 'mongodb'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import { isCollated } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { InTurn } from '../domain/in-turn.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { isPrefix, patternOf, type ShardKey, sameShardKey, showShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { listShards } from '../mongo/config-database.ts'
import { codeOf, isTransient } from '../mongo/errors.ts'
import { presplit } from './presplit.ts'
import { type Distribution, readDistributions, readPlacements } from './sharding.ts'

const unlimited = { timeoutMS: 0 } as const

/**
 * Writes primary shards and shard keys to a sharded destination. Every method is repeatable: it recognizes what is
 * already done. These commands do not accept a collection UUID, so callers must act behind a barrier.
 */
export class DestinationSharding {
  readonly #destination: Cluster
  readonly #source: Cluster
  #shards: Promise<string[]> | null = null
  /** Serializes commands: two databases must not choose the same shard, and a shard migrates one chunk at a time. */
  readonly #turns = new InTurn()
  readonly #placed = new Set<string>()

  constructor(destination: Cluster, source: Cluster) {
    this.#destination = destination
    this.#source = source
  }

  /** Ensures that the database has a primary shard. A new database gets the shard with the fewest databases. */
  async place(database: string): Promise<void> {
    if (!this.#destination.sharded || this.#placed.has(database)) return
    await this.#turns.run(() => this.#place(database))
  }

  async #place(database: string): Promise<void> {
    if (this.#placed.has(database)) return
    const placements = await readPlacements(this.#destination)
    if (!placements.some((one) => one.database === database)) {
      const counts = new Map((await this.#shardNames()).map((shard) => [shard, 0]))
      for (const { primary } of placements) {
        const count = counts.get(primary)
        if (count !== undefined) counts.set(primary, count + 1)
      }
      const [fewest] = [...counts].sort(([, one], [, other]) => one - other)
      if (!fewest)
        throw new FatalError(
          'InternalError',
          `assigning primary shards: config.shards of the destination is empty. Check the destination and send resume. ${notLost.progress}`,
        )
      await this.#destination.write('admin', { enableSharding: database, primaryShard: fewest[0] })
    }
    this.#placed.add(database)
  }

  /**
   * Distributes a new, empty collection over all shards by `entry.shardKey`. Chunks are split at values sampled from
   * the source, so that the copy loads every shard.
   */
  async distribute(entry: CatalogueEntry): Promise<void> {
    const { shardKey } = entry
    if (!shardKey) return
    await this.#shard(entry, shardKey)
    const shards = await this.#shardNames()
    await this.#turns.run(() => presplit(this.#source, this.#destination, entry, shardKey, shards))
  }

  /**
   * Gives the destination collection the source's shard key. Returns true when it changed. When an unsharded collection
   * becomes sharded, its documents stay on their shard; the balancer distributes them after the commit.
   * Throws FatalError UnsupportedChange when the source collection was resharded or is no longer sharded.
   */
  async follow(entry: CatalogueEntry, wanted: ShardKey | null): Promise<boolean> {
    if (sameShardKey(entry.shardKey, wanted)) return false
    if (!wanted) {
      throw reshaped(
        entry,
        `is no longer sharded on the source (its shard key was ${showShardKey(entry.shardKey ?? [])})`,
      )
    }
    const existing = await this.#distribution(entry)
    if (!existing) await this.#shard(entry, wanted)
    else if (!sameShardKey(existing.key, wanted)) {
      if (!isPrefix(existing.key, wanted)) {
        throw reshaped(
          entry,
          `was resharded on the source, from ${showShardKey(existing.key)} to ${showShardKey(wanted)}`,
        )
      }
      await this.#refine(entry, wanted)
    }
    entry.shardKey = wanted
    return true
  }

  async #shard(entry: CatalogueEntry, key: ShardKey): Promise<void> {
    const collated = isCollated(entry.wanted.options)
    await this.#refusable(entry, key, {
      shardCollection: namespace(entry.database, entry.name),
      key: patternOf(key),
      // Required when the collection has a collation of its own: the shard key compares text by its bytes.
      ...(collated ? { collation: { locale: 'simple' } } : {}),
    })
  }

  async #refine(entry: CatalogueEntry, key: ShardKey): Promise<void> {
    const command = { refineCollectionShardKey: namespace(entry.database, entry.name), key: patternOf(key) }
    await this.#refusable(entry, key, command)
  }

  async #refusable(entry: CatalogueEntry, key: ShardKey, command: Document): Promise<void> {
    try {
      await this.#destination.write('admin', command, unlimited)
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error)) throw error
      const existing = await this.#distribution(entry)
      if (existing && sameShardKey(existing.key, key)) return // an earlier attempt, whose answer was lost
      throw new FatalError(
        'ShardingFailed',
        `sharding: ${namespace(entry.database, entry.name)} cannot be sharded by ${showShardKey(key)} on the destination (server error ` +
          `${codeOf(error)}). Check the index of that key there, fix the cause and send resume. ${notLost.progress}`,
        { cause: error },
      )
    }
  }

  async #distribution(entry: CatalogueEntry): Promise<Distribution | undefined> {
    const found = await readDistributions(this.#destination, entry.database)
    return found.find(({ uuid }) => uuid === entry.destinationUUID)
  }

  #shardNames(): Promise<string[]> {
    this.#shards ??= listShards(this.#destination).catch((error) => {
      this.#shards = null
      throw error
    })
    return this.#shards
  }
}

function reshaped(entry: CatalogueEntry, what: string): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `following the shard keys of the source: ${namespace(entry.database, entry.name)} ${what}, which tandem cannot follow. Start over with an emptied destination. ${notLost.source}`,
  )
}
