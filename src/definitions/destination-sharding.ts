import type { Document } from 'mongodb'
import pLimit from 'p-limit'
import type { CatalogEntry } from '../domain/catalog.ts'
import { isCollated } from '../domain/definition.ts'
import { errorText } from '../domain/error-text.ts'
import { assert, FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { isOlderSeries } from '../domain/release.ts'
import { isPrefix, patternOf, type ShardKey, sameShardKey, showShardKey } from '../domain/shard-key.ts'
import type { Cluster, CommandOptions } from '../mongo/cluster.ts'
import { MovedError, renamedTo } from '../mongo/collection-name.ts'
import { readShards } from '../mongo/config-database.ts'
import { codeOf, isTransient, ranOutOfTime, TransientReplyError } from '../mongo/errors.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { toUuid } from '../mongo/uuid.ts'
import { presplit } from './presplit.ts'
import { refuseLongName } from './refuse-definitions.ts'
import { type Distribution, readDistributions, readPlacements, type ShardingEntries } from './sharding.ts'
import { isUniquelyIndexed, readShardingOptions, type ShardingOptions } from './sharding-options.ts'
import { copyZones } from './zones.ts'

/**
 * Commands on collections that have documents have no time limit, because the config server writes every chunk and each
 * shard waits for the collection's operations. A delayed command does no harm: it names the collection's UUID, a
 * collection is sharded only once, and a shard key is never refined to a shorter one.
 */
const unlimited = { timeoutMS: 0 } as const
/**
 * Makes the server accept a unique shard key whose index is not unique yet. The index becomes unique during the commit
 * (`DeferredOptions`). The manual does not document this option, but the server has it for this purpose
 * (jstests/sharding/create_collection.js, "mongosync unique key pattern use case"; measured on 6.0.27).
 */
const withDeferredIndex = { enforceUniquenessCheck: false } as const
/** Maximum number of attempts for a command that exceeds its time limit. Together they take several minutes. */
const limitedAttemptsMax = 20

interface ShardingRequest {
  /** The collections of a replica set that become sharded on the destination. */
  shardingEntries: ShardingEntries
  /** False if the start request says `buildIndexes: never`. */
  buildsIndexes: boolean
}

/**
 * Writes primary shards and shard keys to a sharded destination. Every method is repeatable: it recognizes what is
 * already done. When a time limit ends a command, the shard that coordinates it continues the operation, and the
 * repeated command waits for its end (src/mongo/db/s/sharding_ddl_coordinator.cpp in the server's source). The commands
 * that shard a collection name its UUID, so a delayed one does not reach a collection that was created again under the
 * same name (jstests/sharding/collection_uuid_shard_collection.js and collection_uuid_refine_collection_shard_key.js).
 */
export class DestinationSharding {
  readonly #destination: Cluster
  readonly #source: Cluster
  readonly #context: Pick<RetryContext, 'signal' | 'journal'>
  readonly #request: ShardingRequest
  #shards: Promise<string[]> | null = null
  /** Serializes commands: two databases must not choose the same shard, and a shard migrates one chunk at a time. */
  readonly #turns = pLimit(1)
  readonly #assigned = new Set<string>()
  /** The number of collections that were distributed. */
  #distributed = 0

  /** @param context the signal ends the distribution of a collection; the journal logs an uneven one */
  constructor(
    destination: Cluster,
    source: Cluster,
    context: Pick<RetryContext, 'signal' | 'journal'>,
    request: Partial<ShardingRequest> = {},
  ) {
    this.#context = context
    this.#request = { shardingEntries: [], buildsIndexes: true, ...request }
    this.#destination = destination
    this.#source = source
  }

  /** Ensures that the database has a primary shard. A new database gets the shard with the fewest databases. */
  async assignPrimary(database: string): Promise<void> {
    if (!this.#destination.sharded || this.#assigned.has(database)) return
    await this.#turns(() => this.#assignPrimary(database))
  }

  async #assignPrimary(database: string): Promise<void> {
    if (this.#assigned.has(database)) return
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
          `assigning primary shards: config.shards of the destination lists no shard that may receive data. Check the destination and send resume. ${notLost.progress}`,
        )
      await this.#destination.write('admin', { enableSharding: database, primaryShard: fewest[0] })
    }
    this.#assigned.add(database)
  }

  /**
   * Distributes a new, empty collection by `entry.shardKey` over all shards that are not draining, so that the copy
   * writes to every shard.
   */
  async distribute(entry: CatalogEntry): Promise<void> {
    const { shardKey } = entry
    if (!shardKey) return
    const options = await this.#shard(entry, shardKey, {})
    // The server has already created the chunks according to its zones, as the start request asked.
    if (options.presplitHashedZones) return
    const shards = await this.#shardNames()
    // Each collection begins at the next shard. Otherwise all collections with few chunks would use the same shards.
    const first = this.#distributed++ % Math.max(1, shards.length)
    const rotated = [...shards.slice(first), ...shards.slice(0, first)]
    await this.#turns(async () => {
      await copyZones(this.#source, this.#destination, [entry], (_what, error) => {
        throw error
      })
      const { signal, journal } = this.#context
      const uneven = (error: unknown): void =>
        journal?.('uneven distribution', { namespace: namespace(entry.database, entry.name), error: errorText(error) })
      const { numInitialChunks } = options
      await presplit(this.#source, this.#destination, entry, shardKey, rotated, { signal, uneven, numInitialChunks })
    })
  }

  /**
   * Gives the destination's collection the source's shard key. Returns true if the key changed. When an unsharded
   * collection becomes sharded, its documents stay on their shard; the balancer distributes them after the commit.
   * Throws TransientReplyError when the source's collection is no longer sharded, or was resharded, but still has its
   * former UUID: the shards have not switched to the new collection yet.
   */
  async follow(entry: CatalogEntry, wanted: ShardKey | null): Promise<boolean> {
    if (sameShardKey(entry.shardKey, wanted)) return false
    if (!wanted) {
      throw notSwitched(
        entry,
        `is no longer sharded on the source (its shard key was ${showShardKey(entry.shardKey ?? [])})`,
      )
    }
    const distribution = await this.#distribution(entry)
    const existing = distribution?.key ?? null
    if (!existing) await this.#shard(entry, wanted, unlimited)
    else if (!sameShardKey(existing, wanted)) {
      if (!isPrefix(existing, wanted)) {
        throw notSwitched(
          entry,
          `was resharded on the source, from ${showShardKey(existing)} to ${showShardKey(wanted)}`,
        )
      }
      await this.#refine(entry, wanted, distribution?.unique ?? false)
    }
    entry.shardKey = wanted
    return true
  }

  /** Returns the options with which the collection was sharded. */
  async #shard(entry: CatalogEntry, key: ShardKey, limit: CommandOptions): Promise<ShardingOptions> {
    refuseLongName(this.#destination.names, namespace(entry.database, entry.name), true)
    const options = await this.#optionsOf(entry, key)
    const collated = isCollated(entry.wanted.options)
    const command = {
      shardCollection: namespace(entry.database, entry.name),
      key: patternOf(key),
      // Required if the collection has a collation, because a shard key always compares text by its bytes.
      ...(collated ? { collation: { locale: 'simple' } } : {}),
      ...(options.unique ? { unique: true, ...withDeferredIndex } : {}),
      ...(options.numInitialChunks && takesInitialChunks(this.#destination.version)
        ? { numInitialChunks: options.numInitialChunks }
        : {}),
      ...(options.presplitHashedZones ? { presplitHashedZones: true } : {}),
    }
    await this.#changeSharding(entry, key, command, limit)
    return options
  }

  /**
   * Returns the options of the source's collection or of the start request. The key is declared unique only if the
   * commit makes an index on exactly this key unique. Otherwise `config.collections` would promise uniqueness that
   * nothing enforces.
   */
  async #optionsOf(entry: CatalogEntry, key: ShardKey): Promise<ShardingOptions> {
    const { shardingEntries, buildsIndexes } = this.#request
    const options = await readShardingOptions(this.#source, this.#destination, shardingEntries, entry, key)
    if (!options.unique || isUniquelyIndexed(buildsIndexes ? entry.wanted.indexes : [], key)) return options
    this.#context.journal?.('shard key not unique', { namespace: namespace(entry.database, entry.name) })
    return { ...options, unique: false }
  }

  async #refine(entry: CatalogEntry, key: ShardKey, unique: boolean): Promise<void> {
    const command = {
      refineCollectionShardKey: namespace(entry.database, entry.name),
      key: patternOf(key),
      ...(unique ? withDeferredIndex : {}),
    }
    await this.#changeSharding(entry, key, command, unlimited)
  }

  async #changeSharding(entry: CatalogEntry, key: ShardKey, command: Document, limit: CommandOptions): Promise<void> {
    const { destinationUUID } = entry
    assert(destinationUUID, 'a collection that has not been created cannot be sharded')
    try {
      await this.#untilEnded({ ...command, collectionUUID: toUuid(destinationUUID) }, limit)
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error)) throw error
      if (renamedTo(error) !== undefined)
        throw new MovedError('the collection was renamed or dropped before it was sharded')
      const existing = await this.#distribution(entry)
      if (existing && sameShardKey(existing.key, key)) return // an earlier attempt succeeded, and its reply was lost
      throw new FatalError(
        'ShardingFailed',
        `sharding: ${this.#destination.names.shown(namespace(entry.database, entry.name))} cannot be sharded by ${showShardKey(key)} on the destination ` +
          `(${errorText(error)}). Check the index of that key there${command['presplitHashedZones'] ? ', and the zones of the collection' : ''}, fix the cause and send resume. ${notLost.progress}`,
        { cause: error },
      )
    }
  }

  /**
   * Repeats a command that exceeds its time limit. If the caller got that error, it would drop the collection and
   * create it again.
   */
  async #untilEnded(command: Document, limit: CommandOptions): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#destination.write('admin', command, limit)
        return
      } catch (error) {
        if (!ranOutOfTime(error) || attempt === limitedAttemptsMax) throw error
      }
    }
  }

  async #distribution(entry: CatalogEntry): Promise<Distribution | undefined> {
    const found = await readDistributions(this.#destination, entry.database)
    return found.find(({ uuid }) => uuid === entry.destinationUUID)
  }

  /** Returns the shards that may receive data. A draining shard would have to move its data to another shard later. */
  #shardNames(): Promise<string[]> {
    this.#shards ??= readShards(this.#destination).then(
      (shards) => shards.flatMap(({ name, draining }) => (draining ? [] : [name])),
      (error) => {
        this.#shards = null
        throw error
      },
    )
    return this.#shards
  }
}

/**
 * True if `numInitialChunks` has an effect. From 7.2 on, the server creates one chunk for each shard, and `presplit`
 * splits these further.
 */
function takesInitialChunks(version: string): boolean {
  return isOlderSeries(version, '7.2')
}

/** Returns the error for a source whose shards have not yet switched to the collection with the new UUID. */
function notSwitched(entry: CatalogEntry, what: string): TransientReplyError {
  return new TransientReplyError(
    `following the shard keys of the source: ${namespace(entry.database, entry.name)} ${what}, but it is still listed under its former UUID`,
  )
}
