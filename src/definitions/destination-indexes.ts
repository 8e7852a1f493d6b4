import type { Document } from 'mongodb'
import { type BuildIndexes, buildsAfterCopy, includedIndexes } from '../domain/build-indexes.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import {
  type CollectionDefinition,
  canBecome,
  collModOptions,
  deferredOptionsOf,
  type IndexSpecification,
  indexName,
  indexWhileDeferred,
  lacksExpiry,
  neverExpires,
  sameButForName,
} from '../domain/definition.ts'
import { errorText } from '../domain/error-text.ts'
import { assert, FatalError, StoppedError } from '../domain/errors.ts'
import { type ExistingDefinition, type ExistingIndexes, foundSpecifications } from '../domain/existing-indexes.ts'
import type { IndexBuild } from '../domain/index-building.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { buildDocument, typedBoolean, typedDocument } from '../domain/raw-bson.ts'
import { type ShardKey, supportsShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo, underPresentName } from '../mongo/collection-name.ts'
import { code, codeOf, isTransient } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'
import { BuildsUnderWay } from './builds-under-way.ts'
import { readExistingIndexes } from './shard-indexes.ts'

/**
 * Index builds have no time limit. Commands that create, drop or rename a collection have the time limit of writes, so
 * that a delayed one has no effect after the next coordinator has stopped waiting for it. A delayed index build is
 * harmless: it names its collection by UUID, and the commit compares the indexes.
 */
const unlimited = { timeoutMS: 0 } as const

/**
 * Writes the indexes of the destination's collections without their deferred options. Only `buildConflicting` sets one
 * of them, `unique`. Every command names the collection's UUID, and every method is repeatable: it recognizes what is
 * already done.
 */
export class DestinationIndexes {
  readonly #cluster: Cluster
  readonly #mode: BuildIndexes
  /**
   * The last index of a collection that the destination refused to build, as text for an error. The collection's next
   * DDL and the commit try again. The key is the entry, so a refusal ends when the collection leaves the catalog, however
   * it leaves.
   */
  readonly #refused = new WeakMap<CatalogEntry, string>()
  readonly builds = new BuildsUnderWay()
  /**
   * Returns true if the work in progress must stop. It is called between commands, and StoppedError is thrown if it
   * returns true.
   */
  isStopped: () => boolean = () => false

  constructor(destination: Cluster, mode: BuildIndexes) {
    this.#cluster = destination
    this.#mode = mode
  }

  /**
   * True if `buildIndexes` delays the indexes of a copied collection until its copy has ended, except those that its
   * shard key needs.
   */
  get afterCopy(): boolean {
    return buildsAfterCopy(this.#mode)
  }

  /** Selects the indexes that the sync creates, drops and compares in a collection with this shard key. */
  readonly included = (all: IndexSpecification[], shardKey: ShardKey | null): IndexSpecification[] =>
    includedIndexes(all, this.#mode, shardKey)

  /**
   * Builds the indexes of a collection that was just created. If its indexes are built after its copy, this builds only
   * those that its sharding needs.
   */
  async create(entry: CatalogEntry): Promise<void> {
    const { indexes } = entry.wanted
    const build = { total: indexes.length, missing: indexes.length }
    await this.builds.during(entry.uuid, build, async () => {
      await this.#createIndexes(entry, indexes, this.#due(entry, indexes), [])
    })
  }

  /**
   * Builds the indexes of a collection whose copy has ended. An index that a former coordinator began to build counts
   * as missing, so createIndexes is sent again. The server then waits for the build in progress and does not begin
   * another.
   */
  async buildAwaited(entry: CatalogEntry): Promise<void> {
    const { indexes } = entry.wanted
    await this.#createIndexes(entry, indexes, indexes)
  }

  /**
   * Builds the wanted indexes that are missing. Usually they were left out because they differ from another index only
   * in their name and in deferred options such as `unique`. A unique index is built before writes are enabled. A
   * non-unique index is built when the index with which it conflicts has become unique.
   */
  async buildConflicting(entry: CatalogEntry, which: 'unique' | 'all'): Promise<void> {
    if (this.#mode === 'never') return
    for (const one of this.missingIndexes((await this.#existingIndexes(entry)).indexes, entry.wanted.indexes)) {
      const { unique } = deferredOptionsOf(one)
      if (which === 'unique' && !unique) continue
      this.#throwIfStopped()
      const specification = indexWhileDeferred(one, entry.wanted.options)
      if (unique) specification.push({ name: 'unique', value: typedBoolean(true) })
      const indexes = [new RawValue(typedDocument(buildDocument(specification)))]
      try {
        await underPresentName(entry, (name) =>
          this.#cluster.write(entry.database, { createIndexes: name, ...this.#uuid(entry), indexes }, unlimited),
        )
      } catch (error) {
        if (codeOf(error) === undefined || isTransient(error)) throw error
        throw new FatalError(
          codeOf(error) === code.duplicateKey ? 'DuplicateKey' : 'IndexBuildFailed',
          `building indexes: ${indexName(one)} of ${this.#cluster.names.shown(namespace(entry.database, entry.name))} cannot be built on the destination ` +
            `(${errorText(error)}). Fix the cause and send resume. ${notLost.progress}`,
          { cause: error },
        )
      }
    }
  }

  /**
   * Drops, changes and creates indexes until only deferred options differ. Returns true if an index differed, or if
   * `wanted` differs from `entry.wanted.indexes`, so that the entry must be stored.
   * @param shardKey the shard key that the collection will get
   */
  async followIndexes(
    entry: CatalogEntry,
    wanted: IndexSpecification[],
    shardKey: ShardKey | null = entry.shardKey,
  ): Promise<boolean> {
    const dropOthers = (known?: ExistingIndexes) =>
      this.dropIndexesExcept(entry, wanted, (all) => this.#droppable(all, wanted, shardKey), known)
    const existing = await this.#existingIndexes(entry)
    let dropped = await dropOthers(existing)
    const expiryAdded = await this.#addExpiry(entry, wanted)
    const remaining = dropped || expiryAdded ? null : existing.indexes
    const created = await this.#createIndexes(entry, wanted, this.#due(entry, wanted, shardKey), remaining)
    // Drops an index that was kept because no other index supported the shard key.
    if (created && entry.shardKey) dropped = (await dropOthers()) || dropped
    if (expiryAdded) return true
    return dropped || created || entry.wanted.indexes.length !== wanted.length || entry.wanted.indexes.some(differs)

    function differs(one: IndexSpecification, at: number): boolean {
      const other = wanted[at]
      return !other || Buffer.compare(buildDocument(one), buildDocument(other)) !== 0
    }
  }

  /**
   * True if followOptions and followIndexes would change nothing. Sends no commands.
   * @param existing the destination's definition
   * @param wanted the source's definition, with all of its indexes
   */
  isFollowed(entry: CatalogEntry, existing: ExistingDefinition, wanted: CollectionDefinition): boolean {
    if (entry.awaitsIndexes || entry.refusedIndexes.length > 0 || this.#refused.has(entry)) return false
    if (collModOptions(existing.options, wanted.options).length > 0) return false
    const included = this.included(wanted.indexes, entry.shardKey)
    if (this.missingIndexes(existing.indexes, included).length > 0) return false
    const byName = new Map(included.map((one) => [indexName(one), one]))
    const found = [...foundSpecifications(existing).values()].flat()
    const others = this.#droppable(found, included, entry.shardKey).filter((one) => {
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

  /** Returns an index that the destination has refused to build in one of these collections, as text for an error. */
  refusedIn(entries: readonly CatalogEntry[]): string | undefined {
    const refusing = entries.find((entry) => this.#refused.has(entry))
    return refusing && this.#refused.get(refusing)
  }

  /**
   * Returns the existing indexes that may be dropped: those that the sync includes, and those with the name of a wanted
   * index.
   */
  #droppable(
    existing: IndexSpecification[],
    wanted: IndexSpecification[],
    shardKey: ShardKey | null,
  ): IndexSpecification[] {
    const included = new Set(this.included(existing, shardKey))
    const names = new Set(wanted.map(indexName))
    return existing.filter((one) => included.has(one) || names.has(indexName(one)))
  }

  /** Returns the wanted indexes that do not exist. Returns none if the sync does not build indexes. */
  missingIndexes(existing: IndexSpecification[], wanted: IndexSpecification[]): IndexSpecification[] {
    if (this.#mode === 'never') return []
    const names = new Set(existing.map(indexName))
    return wanted.filter((one) => !names.has(indexName(one)))
  }

  /**
   * Drops the droppable indexes of the collection that are not in `wanted` or cannot become the wanted index of that
   * name. The last index that supports the shard key is kept. Returns true if it dropped one.
   * @param droppable selects the existing indexes that may be dropped
   * @param known the existing indexes if they were just read
   */
  async dropIndexesExcept(
    entry: CatalogEntry,
    wanted: IndexSpecification[],
    droppable: (all: IndexSpecification[]) => IndexSpecification[] = (all) => all,
    known?: ExistingIndexes,
  ): Promise<boolean> {
    const existing = known ?? (await this.#existingIndexes(entry))
    const byName = new Map(wanted.map((one) => [indexName(one), one]))
    let dropped = false
    const isWanted = (one: IndexSpecification): boolean => {
      const other = byName.get(indexName(one))
      return other !== undefined && canBecome(one, other)
    }
    const supports = (one: IndexSpecification): boolean =>
      entry.shardKey !== null && supportsShardKey(one, entry.shardKey)
    // The server refuses to drop the last index that supports the shard key.
    const supporting = new Set(existing.indexes.filter(supports).map(indexName))
    for (const [name, found] of foundSpecifications(existing)) {
      if (droppable(found).every(isWanted)) continue
      if (found.some(supports) && [...supporting].every((other) => other === name)) continue
      supporting.delete(name)
      await this.#dropIndex(entry, name)
      dropped = true
    }
    return dropped
  }

  /**
   * Converts indexes into TTL indexes if the source did so, with the largest expiry that the server accepts: only
   * documents whose date is more than 68 years ago expire. If the server refuses the change, the index is dropped and
   * then built again with the other missing indexes.
   */
  async #addExpiry(entry: CatalogEntry, wanted: IndexSpecification[]): Promise<boolean> {
    if (!wanted.some((one) => deferredOptionsOf(one).expireAfterSeconds)) return false
    const existing = foundSpecifications(await this.#existingIndexes(entry))
    let changed = false
    for (const one of wanted) {
      const found = existing.get(indexName(one))
      if (!found?.some((other) => lacksExpiry(other, one))) continue
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

  async #dropIndex(entry: CatalogEntry, index: string): Promise<void> {
    try {
      await underPresentName(entry, (name) =>
        this.#cluster.write(entry.database, { dropIndexes: name, ...this.#uuid(entry), index }),
      )
    } catch (error) {
      // A command of a former coordinator may have dropped the index after the definitions were read.
      if (codeOf(error) !== code.indexNotFound) throw error
    }
  }

  async #existingIndexes({ database, name, destinationUUID, shardKey }: CatalogEntry): Promise<ExistingIndexes> {
    assert(destinationUUID, 'indexes are read before their collection is created')
    const located = { database, name, uuid: destinationUUID, isSharded: shardKey !== null }
    return await readExistingIndexes(this.#cluster, located)
  }

  /**
   * Returns the wanted indexes that are built now. While the collection's indexes await the end of its copy, only those
   * that support the shard key are built.
   */
  #due(entry: CatalogEntry, wanted: IndexSpecification[], shardKey = entry.shardKey): IndexSpecification[] {
    if (!entry.awaitsIndexes) return wanted
    return wanted.filter((one) => shardKey !== null && supportsShardKey(one, shardKey))
  }

  /**
   * Builds the missing indexes among those that are due. Returns true if any was missing.
   * @param due the indexes that are built now; the other wanted ones remain missing
   */
  async #createIndexes(
    entry: CatalogEntry,
    wanted: IndexSpecification[],
    due = this.#due(entry, wanted),
    existing: IndexSpecification[] | null = null,
  ): Promise<boolean> {
    this.#refused.delete(entry)
    entry.refusedIndexes = []
    if (this.#mode === 'never' || due.length === 0) return false
    const missing = this.missingIndexes(existing ?? (await this.#existingIndexes(entry)).indexes, due)
    if (missing.length === 0) return false
    const build: IndexBuild = { total: wanted.length, missing: wanted.length - due.length + missing.length }
    await this.builds.during(entry.uuid, build, () => this.#buildMissing(entry, missing, build))
    return true
  }

  async #buildMissing(entry: CatalogEntry, missing: IndexSpecification[], build: IndexBuild): Promise<void> {
    try {
      await this.#build(entry, missing)
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error) || renamedTo(error) !== undefined) throw error
      // An index that cannot be built must not block the others. It may be possible to build it by the time of the
      // commit.
      const refused: string[] = []
      for (const one of missing) {
        this.#throwIfStopped()
        const built = () => {
          build.missing -= 1
        }
        await this.#build(entry, [one]).then(built, (failure) => {
          if (this.#recordRefusal(entry, one, failure)) refused.push(indexName(one))
        })
      }
      entry.refusedIndexes = refused
    }
  }

  /**
   * Records that the destination refused an index. Returns false and records nothing for an index that only conflicts
   * with another one while `unique` is deferred.
   */
  #recordRefusal(entry: CatalogEntry, specification: IndexSpecification, failure: unknown): boolean {
    if (codeOf(failure) === undefined || isTransient(failure)) throw failure
    // While `unique` is deferred, two indexes on the same keys conflict. buildConflicting builds the second at commit.
    if (codeOf(failure) === code.indexOptionsConflict && conflictsWhileDeferred(specification, entry.wanted.indexes)) {
      return false
    }
    this.#refused.set(
      entry,
      `index ${indexName(specification)} of ${this.#cluster.names.shown(namespace(entry.database, entry.name))} (${errorText(failure)})`,
    )
    return true
  }

  async #build(entry: CatalogEntry, specifications: IndexSpecification[]): Promise<void> {
    this.#throwIfStopped()
    const indexes = specifications.map(
      (one) => new RawValue(typedDocument(buildDocument(indexWhileDeferred(one, entry.wanted.options)))),
    )
    await underPresentName(entry, (name) =>
      this.#cluster.write(entry.database, { createIndexes: name, ...this.#uuid(entry), indexes }, unlimited),
    )
  }

  /** Called between commands, because each may take long. */
  #throwIfStopped(): void {
    if (this.isStopped()) throw new StoppedError()
  }

  #uuid(entry: CatalogEntry): Document {
    assert(entry.destinationUUID, 'a command names a collection that has not been created')
    return { collectionUUID: toUuid(entry.destinationUUID) }
  }
}

/**
 * True if the collection has another index that differs from this one only in its name, `unique` and other deferred
 * options.
 */
function conflictsWhileDeferred(specification: IndexSpecification, all: IndexSpecification[]): boolean {
  return all.some((one) => indexName(one) !== indexName(specification) && sameButForName(one, specification))
}
