import type { Document } from 'mongodb'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import {
  type CollectionDefinition,
  canBecome,
  collModOptions,
  type IndexSpecification,
  indexName,
  indexWhileDeferred,
  lacksExpiry,
  neverExpires,
  optionsWhileDeferred,
  sameButForName,
  traitsOf,
} from '../domain/definition.ts'
import { errorText } from '../domain/error-text.ts'
import { assert, FatalError, StoppedError } from '../domain/errors.ts'
import type { IndexBuild } from '../domain/index-building.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { buildDocument, type RawFields, typedBoolean, typedDocument } from '../domain/raw-bson.ts'
import { supportsShardKey } from '../domain/shard-key.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo, underPresentName } from '../mongo/collection-name.ts'
import { code, codeOf, isTransient, TransientReplyError } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'
import { BuildsUnderWay } from './builds-under-way.ts'
import { createNamespace } from './create-namespace.ts'
import type { DestinationSharding } from './destination-sharding.ts'
import { type ListedCollection, listCollections, listIndexes, nameOfCollection } from './listing.ts'

/**
 * Index builds have no time limit. All other commands have the time limit of writes, so that no delayed command
 * creates, drops or renames a collection after a successor has stopped waiting for it. A delayed index build is
 * harmless: it names its collection by UUID, and the commit compares the indexes.
 */
const unlimited = { timeoutMS: 0 } as const

/**
 * Writes definitions to the destination without their deferred options. Every command names the collection's UUID, and
 * every method is repeatable: it recognizes what is already done.
 */
export class DestinationDefinitions {
  readonly #cluster: Cluster
  readonly #buildIndexes: StartConfiguration['buildIndexes']
  /** Null where the destination is a replica set. */
  readonly sharding: DestinationSharding | null
  /** Index builds that the destination refused, by UUID. The collection's next DDL and the commit try them again. */
  readonly refusedIndexes = new Map<string, string>()
  readonly builds = new BuildsUnderWay()
  /** Whether a destination UUID belongs to a collection in the catalogue. */
  isOurs: (uuid: string) => boolean = () => false
  /** Whether the work in progress must stop. Checked between commands; StoppedError is thrown when it returns true. */
  isStopped: () => boolean = () => false

  constructor(
    destination: Cluster,
    buildIndexes: StartConfiguration['buildIndexes'],
    sharding: DestinationSharding | null = null,
  ) {
    this.#cluster = destination
    this.#buildIndexes = buildIndexes
    this.sharding = sharding
  }

  /** Creates the collection with its indexes, shards it when it has a shard key, and sets `entry.destinationUUID`. */
  async create(entry: CatalogueEntry): Promise<void> {
    const options: Document = {}
    for (const { name, value } of optionsWhileDeferred(entry.wanted.options)) options[name] = new RawValue(value)
    await this.sharding?.place(entry.database)
    const create = () => createNamespace(this.#cluster, entry.database, entry.name, options)
    try {
      await create()
    } catch (error) {
      if (codeOf(error) !== code.namespaceExists) throw error
      await this.dropUnrecorded(entry.database, entry.name)
      await create()
    }
    const [created] = await listCollections(this.#cluster, entry.database, entry.name)
    if (!created) throw new TransientReplyError(`${entry.name} is not listed right after its creation`)
    const { length } = entry.wanted.indexes
    await this.builds.during(entry.uuid, { total: length, missing: length }, async () => {
      entry.destinationUUID = created.uuid
      await this.#createIndexes(entry, entry.wanted.indexes)
    })
    // The collection is still empty, so the server builds the index for the shard key when it is missing.
    await this.sharding?.distribute(entry)
  }

  /**
   * Drops a collection that a predecessor created when it crashed before it stored the UUID. Such a collection is
   * empty. A collection with documents belongs to someone else and causes FatalError DestinationConflict.
   */
  async dropUnrecorded(database: string, name: string): Promise<void> {
    const [found] = await listCollections(this.#cluster, database, name)
    // One of our collections may have been renamed to this name in the meantime.
    if (!found || this.isOurs(found.uuid)) return
    const conflict = new FatalError(
      'DestinationConflict',
      `creating ${namespace(database, name)} on the destination: a collection or view with that name exists there and is not tandem's. Stop what writes there, drop that ` +
        `namespace on the destination and send resume. ${notLost.source}`,
    )
    if (found.type !== 'collection') throw conflict
    const uuid = toUuid(found.uuid)
    const reply = await this.#cluster.read(database, {
      find: name,
      collectionUUID: uuid,
      limit: 1,
      projection: { _id: 1 },
    })
    if ((reply['cursor'].firstBatch as unknown[]).length > 0) throw conflict
    await this.#cluster.write(database, { drop: name, collectionUUID: uuid })
  }

  /**
   * Builds wanted indexes that were left out because they differ from another index only in `unique`. The unique index
   * is built before writes are enabled; a non-unique one is built when its conflicting index has become unique.
   */
  async buildConflicting(entry: CatalogueEntry, which: 'unique' | 'all'): Promise<void> {
    if (this.#buildIndexes === 'never') return
    for (const one of this.missingIndexes(await this.#existingIndexes(entry), entry.wanted.indexes)) {
      const { unique } = traitsOf(one)
      if (which === 'unique' && !unique) continue
      this.#throwIfStopped()
      const built = indexWhileDeferred(one, entry.wanted.options)
      if (unique) built.push({ name: 'unique', value: typedBoolean(true) })
      const indexes = [new RawValue(typedDocument(buildDocument(built)))]
      try {
        await underPresentName(entry, (name) =>
          this.#cluster.write(entry.database, { createIndexes: name, ...this.#uuid(entry), indexes }, unlimited),
        )
      } catch (error) {
        if (codeOf(error) === undefined || isTransient(error)) throw error
        throw new FatalError(
          codeOf(error) === code.duplicateKey ? 'DuplicateKey' : 'IndexBuildFailed',
          `building indexes: ${indexName(one)} of ${namespace(entry.database, entry.name)} cannot be built on the destination ` +
            `(${errorText(error)}). Fix the cause and send resume. ${notLost.progress}`,
          { cause: error },
        )
      }
    }
  }

  async drop(entry: CatalogueEntry): Promise<void> {
    if (!entry.destinationUUID) return await this.dropUnrecorded(entry.database, entry.name)
    await underPresentName(entry, (name) => this.#cluster.write(entry.database, { drop: name, ...this.#uuid(entry) }))
  }

  async rename(entry: CatalogueEntry, name: string): Promise<void> {
    await underPresentName(entry, async (known) => {
      // Through mongos, renameCollection accepts a UUID but does not check it (measured on 6.0.27).
      const present = this.#cluster.sharded ? await this.#presentName(entry) : known
      if (present === name || present === null) return
      const from = namespace(entry.database, present)
      const to = namespace(entry.database, name)
      await this.#cluster.write('admin', { renameCollection: from, to, ...this.#uuid(entry) })
    })
  }

  /** Reads the existing options of each collection of a database, by UUID. */
  async existingOptions(database: string): Promise<Map<string, RawFields>> {
    return new Map((await listCollections(this.#cluster, database)).map(({ uuid, options }) => [uuid, options]))
  }

  /**
   * Applies changed options. Returns true when the change must be stored.
   * @param before the destination's options, from the catalogue or as read from the destination
   */
  async followOptions(entry: CatalogueEntry, options: RawFields, before = entry.wanted.options): Promise<boolean> {
    const changes: Document = {}
    for (const { name, value } of collModOptions(before, options)) changes[name] = new RawValue(value)
    if (Object.keys(changes).length > 0) {
      await underPresentName(entry, (name) =>
        this.#cluster.write(entry.database, { collMod: name, ...this.#uuid(entry), ...changes }),
      )
    }
    return Buffer.compare(buildDocument(before), buildDocument(options)) !== 0
  }

  /** Drops, changes and creates indexes until only deferred options differ. Returns true when anything changed. */
  async followIndexes(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    let dropped = await this.dropIndexesExcept(entry, wanted)
    const expiring = await this.#addExpiry(entry, wanted)
    const created = await this.#createIndexes(entry, wanted)
    // Drops an index that was kept because no other index supported the shard key.
    if (created && entry.shardKey) dropped = (await this.dropIndexesExcept(entry, wanted)) || dropped
    if (expiring) return true
    return dropped || created || entry.wanted.indexes.length !== wanted.length || entry.wanted.indexes.some(differs)

    function differs(one: IndexSpecification, at: number): boolean {
      const other = wanted[at]
      return !other || Buffer.compare(buildDocument(one), buildDocument(other)) !== 0
    }
  }

  /**
   * Decides in memory whether followOptions and followIndexes would find anything to do.
   * @param existing the destination's definition
   */
  isFollowed(entry: CatalogueEntry, existing: CollectionDefinition, wanted: CollectionDefinition): boolean {
    if (entry.refusedIndexes.length > 0 || this.refusedIndexes.has(entry.uuid)) return false
    if (collModOptions(existing.options, wanted.options).length > 0) return false
    if (this.missingIndexes(existing.indexes, wanted.indexes).length > 0) return false
    const byName = new Map(wanted.indexes.map((one) => [indexName(one), one]))
    const others = existing.indexes.filter((one) => {
      const index = byName.get(indexName(one))
      return !index || !canBecome(one, index) || lacksExpiry(one, index)
    })
    const [other] = others
    if (!other) return true
    // When the source has no index for the shard key, the only index that supports it is kept.
    const { shardKey } = entry
    const supporting = shardKey ? existing.indexes.filter((one) => supportsShardKey(one, shardKey)) : []
    return others.length === 1 && supporting.length === 1 && supporting[0] === other && !byName.has(indexName(other))
  }

  /** Returns the wanted indexes that do not exist; none when the sync does not build indexes. */
  missingIndexes(existing: IndexSpecification[], wanted: IndexSpecification[]): IndexSpecification[] {
    if (this.#buildIndexes === 'never') return []
    const names = new Set(existing.map(indexName))
    return wanted.filter((one) => !names.has(indexName(one)))
  }

  /**
   * Drops the destination's indexes that are not in `wanted`, or not in this form. Returns true when one was dropped.
   */
  async dropIndexesExcept(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    const existing = await this.#existingIndexes(entry)
    const byName = new Map(wanted.map((one) => [indexName(one), one]))
    let dropped = false
    const isWanted = (one: IndexSpecification): boolean => {
      const other = byName.get(indexName(one))
      return other !== undefined && canBecome(one, other)
    }
    // The server refuses to drop the last index that supports the shard key.
    let supporting = existing.filter((one) => entry.shardKey && supportsShardKey(one, entry.shardKey))
    for (const one of existing) {
      if (isWanted(one)) continue
      if (supporting.includes(one)) {
        if (supporting.length === 1) continue
        supporting = supporting.filter((other) => other !== one)
      }
      await this.#dropIndex(entry, indexName(one))
      dropped = true
    }
    return dropped
  }

  /**
   * Sets an expiry that never expires a document on the indexes that became TTL indexes on the source. An index that
   * the server refuses to change is dropped, so that it is built again with the other missing indexes.
   */
  async #addExpiry(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    if (!wanted.some((one) => traitsOf(one).expireAfterSeconds)) return false
    const existing = new Map((await this.#existingIndexes(entry)).map((one) => [indexName(one), one]))
    let changed = false
    for (const one of wanted) {
      const found = existing.get(indexName(one))
      if (!found || !lacksExpiry(found, one)) continue
      this.#throwIfStopped()
      const index = { name: indexName(one), expireAfterSeconds: neverExpires }
      const change = (name: string): Promise<unknown> =>
        this.#cluster.write(entry.database, { collMod: name, ...this.#uuid(entry), index })
      try {
        await underPresentName(entry, change)
      } catch (error) {
        if (codeOf(error) === undefined || isTransient(error)) throw error
        await this.#dropIndex(entry, indexName(one))
      }
      changed = true
    }
    return changed
  }

  async #dropIndex(entry: CatalogueEntry, index: string): Promise<void> {
    await underPresentName(entry, (name) =>
      this.#cluster.write(entry.database, { dropIndexes: name, ...this.#uuid(entry), index }),
    )
  }

  /**
   * Drops views that the source no longer has, so that other namespaces can take their names.
   * @param ours selects the destination's views that the sync may change
   */
  async dropViewsExcept(
    database: string,
    wanted: ListedCollection[],
    ours: (views: ListedCollection[]) => Promise<ListedCollection[]>,
  ): Promise<void> {
    const names = new Set(wanted.map((one) => one.name))
    for (const view of await ours(await this.#views(database))) {
      if (!names.has(view.name)) await this.#cluster.write(database, { drop: view.name })
    }
  }

  async followViews(database: string, wanted: ListedCollection[]): Promise<void> {
    if (wanted.length === 0) return
    const existing = new Map((await this.#views(database)).map((one) => [one.name, one]))
    await this.sharding?.place(database)
    const isUnchanged = ({ name, options }: ListedCollection): boolean => {
      const known = existing.get(name)
      return known !== undefined && Buffer.compare(buildDocument(known.options), buildDocument(options)) === 0
    }
    const changed = wanted.filter((view) => !isUnchanged(view))
    // All changed views are dropped before the first is created again: the server refuses a view whose collation
    // differs from that of the view it is built on (error 167), which could still have its old definition.
    for (const { name } of changed) if (existing.has(name)) await this.#cluster.write(database, { drop: name })
    for (const view of changed) {
      const options: Document = {}
      for (const { name, value } of view.options) options[name] = new RawValue(value)
      await createNamespace(this.#cluster, database, view.name, options)
    }
  }

  async #views(database: string): Promise<ListedCollection[]> {
    return (await listCollections(this.#cluster, database)).filter((one) => one.type === 'view')
  }

  async #existingIndexes(entry: CatalogueEntry): Promise<IndexSpecification[]> {
    assert(entry.destinationUUID, 'the indexes of a collection that has not been created are read')
    return (await listIndexes(this.#cluster, entry.database, entry.destinationUUID)) ?? []
  }

  async #createIndexes(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    this.refusedIndexes.delete(entry.uuid)
    entry.refusedIndexes = []
    if (this.#buildIndexes === 'never' || wanted.length === 0) return false
    const missing = this.missingIndexes(await this.#existingIndexes(entry), wanted)
    if (missing.length === 0) return false
    const build: IndexBuild = { total: wanted.length, missing: missing.length }
    await this.builds.during(entry.uuid, build, () => this.#buildMissing(entry, missing, build))
    return true
  }

  async #buildMissing(entry: CatalogueEntry, missing: IndexSpecification[], build: IndexBuild): Promise<void> {
    try {
      await this.#build(entry, missing)
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error) || renamedTo(error) !== undefined) throw error
      // An index that cannot be built must not block the others. It may be possible to build it by the time of the
      // commit.
      for (const one of missing) {
        this.#throwIfStopped()
        const built = () => {
          build.missing -= 1
        }
        await this.#build(entry, [one]).then(built, (failure) => this.#recordRefusal(entry, one, failure))
      }
    }
  }

  #recordRefusal(entry: CatalogueEntry, specification: IndexSpecification, failure: unknown): void {
    if (codeOf(failure) === undefined || isTransient(failure)) throw failure
    // While `unique` is deferred, two indexes on the same keys conflict. buildConflicting builds the second at commit.
    if (codeOf(failure) === code.indexOptionsConflict && conflictsWithoutUnique(specification, entry.wanted.indexes))
      return
    entry.refusedIndexes.push(indexName(specification))
    this.refusedIndexes.set(
      entry.uuid,
      `index ${indexName(specification)} of ${namespace(entry.database, entry.name)} (${errorText(failure)})`,
    )
  }

  async #build(entry: CatalogueEntry, specifications: IndexSpecification[]): Promise<void> {
    const indexes = specifications.map(
      (one) => new RawValue(typedDocument(buildDocument(indexWhileDeferred(one, entry.wanted.options)))),
    )
    await underPresentName(entry, (name) =>
      this.#cluster.write(entry.database, { createIndexes: name, ...this.#uuid(entry), indexes }, unlimited),
    )
  }

  /** Called between commands, each of which may take long. */
  #throwIfStopped(): void {
    if (this.isStopped()) throw new StoppedError()
  }

  async #presentName(entry: CatalogueEntry): Promise<string | null> {
    assert(entry.destinationUUID, 'a command needs a collection that has not been created')
    return await nameOfCollection(this.#cluster, entry.database, entry.destinationUUID)
  }

  #uuid(entry: CatalogueEntry): Document {
    assert(entry.destinationUUID, 'a command needs a collection that has not been created')
    return { collectionUUID: toUuid(entry.destinationUUID) }
  }
}

/** True when the collection has another index that differs only in `unique` and other deferred options. */
function conflictsWithoutUnique(specification: IndexSpecification, all: IndexSpecification[]): boolean {
  return all.some((one) => indexName(one) !== indexName(specification) && sameButForName(one, specification))
}
