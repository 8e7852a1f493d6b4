import type { Document } from 'mongodb'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import {
  type CollectionDefinition,
  canBecome,
  collModOptions,
  heldBackIndex,
  heldBackOptions,
  type IndexSpecification,
  indexName,
  lacksExpiry,
  neverExpires,
  sameButForName,
  traitsOf,
} from '../domain/definition.ts'
import { assert, FatalError, StoppedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { buildDocument, type RawFields, typedBoolean, typedDocument } from '../domain/raw-bson.ts'
import { supportsShardKey } from '../domain/shard-key.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo, underPresentName } from '../mongo/collection-name.ts'
import { code, codeOf, isTransient, TransientReplyError } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'
import type { DestinationSharding } from './destination-sharding.ts'
import { type ListedCollection, listCollections, listIndexes, nameOfCollection } from './listing.ts'

/**
 * Index builds take as long as they take. All else has the limit of every write, so that nothing is created, dropped or renamed by a
 * command that a successor no longer waits for: an index that is built late names its collection by UUID, and is compared at commit.
 */
const unlimited = { timeoutMS: 0 } as const

/**
 * Definitions on the destination, in their held-back form. Every command names the collection's UUID, and every method
 * may be repeated: what is done already is recognised.
 */
export class DestinationDefinitions {
  readonly #cluster: Cluster
  readonly #buildIndexes: StartConfiguration['buildIndexes']
  /** Null where the destination is a replica set. */
  readonly sharding: DestinationSharding | null
  /** Index builds the destination refused so far, by UUID: tried again with the collection's next DDL and at commit. */
  readonly refusedIndexes = new Map<string, string>()
  /** Whether a UUID of the destination is that of a collection in the catalogue. */
  isOurs: (uuid: string) => boolean = () => false
  /** Whether what is under way was told to stop: looked at between two commands, StoppedError is thrown then. */
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

  /** Creates the collection with its indexes, distributes it where it has a shard key, and sets its UUID. */
  async create(entry: CatalogueEntry): Promise<void> {
    const options: Document = {}
    for (const { name, value } of heldBackOptions(entry.wanted.options)) options[name] = new RawValue(value)
    await this.sharding?.place(entry.database)
    const create = () => this.#cluster.write(entry.database, { create: entry.name, ...options })
    try {
      await create()
    } catch (error) {
      if (codeOf(error) !== code.namespaceExists) throw error
      await this.dropUnrecorded(entry.database, entry.name)
      await create()
    }
    const [created] = await listCollections(this.#cluster, entry.database, entry.name)
    if (!created) throw new TransientReplyError(`${entry.name} is not there right after its creation`)
    entry.destinationUUID = created.uuid
    await this.#createIndexes(entry, entry.wanted.indexes)
    // The server itself builds an index for the key where the collection, still empty, has none.
    await this.sharding?.distribute(entry)
  }

  /**
   * Removes what a predecessor created and died before it could store its UUID: nothing has been written to it. A
   * collection with documents is somebody else's, and is not touched.
   */
  async dropUnrecorded(database: string, name: string): Promise<void> {
    const [found] = await listCollections(this.#cluster, database, name)
    // One that was renamed to this name in the meantime stands there by right.
    if (!found || this.isOurs(found.uuid)) return
    const conflict = new FatalError(
      'DestinationConflict',
      `${namespace(database, name)} on the destination is not tandem's. Something else writes there: stop it, drop that ` +
        'namespace and send resume.',
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
   * Builds wanted indexes that were left out because they differ from another one only in `unique`: the unique one
   * before writes are allowed, the other when its twin has become unique.
   */
  async buildConflicting(entry: CatalogueEntry, which: 'unique' | 'all'): Promise<void> {
    if (this.#buildIndexes === 'never') return
    for (const one of this.missingIndexes(await this.#standingIndexes(entry), entry.wanted.indexes)) {
      const { unique } = traitsOf(one)
      if (which === 'unique' && !unique) continue
      this.#insist()
      const built = heldBackIndex(one, entry.wanted.options)
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
          `index ${indexName(one)} of ${namespace(entry.database, entry.name)} cannot be built on the destination ` +
            `(server error ${codeOf(error)}). Mend the cause and send resume.`,
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
      // Through mongos renameCollection takes a UUID and does not look at it (measured on 6.0.27).
      const present = this.#cluster.sharded ? await this.#presentName(entry) : known
      if (present === name || present === null) return
      const from = namespace(entry.database, present)
      const to = namespace(entry.database, name)
      await this.#cluster.write('admin', { renameCollection: from, to, ...this.#uuid(entry) })
    })
  }

  /** The options of each collection of a database as they stand, by UUID. */
  async standingOptions(database: string): Promise<Map<string, RawFields>> {
    return new Map((await listCollections(this.#cluster, database)).map(({ uuid, options }) => [uuid, options]))
  }

  /**
   * Applies changed options; returns true when something changed that is to be remembered.
   * @param before what the destination has, as it is remembered or as it was found to stand
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

  /** Drops, changes and creates indexes until only deferred options differ; returns true when anything changed. */
  async followIndexes(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    let dropped = await this.dropIndexesExcept(entry, wanted)
    const expiring = await this.#addExpiry(entry, wanted)
    const created = await this.#createIndexes(entry, wanted)
    // One that was kept because the shard key leant on nothing else.
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
   * @param existing what the destination has
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
    // The one index that supports the shard key, where the source has none, is kept.
    const { shardKey } = entry
    const supporting = shardKey ? existing.indexes.filter((one) => supportsShardKey(one, shardKey)) : []
    return others.length === 1 && supporting.length === 1 && supporting[0] === other && !byName.has(indexName(other))
  }

  /** The wanted indexes that do not exist, where they are to be built. */
  missingIndexes(existing: IndexSpecification[], wanted: IndexSpecification[]): IndexSpecification[] {
    if (this.#buildIndexes === 'never') return []
    const names = new Set(existing.map(indexName))
    return wanted.filter((one) => !names.has(indexName(one)))
  }

  /** Drops what stands on the destination and is not (or not in this form) among `wanted`. */
  async dropIndexesExcept(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    const standing = await this.#standingIndexes(entry)
    const byName = new Map(wanted.map((one) => [indexName(one), one]))
    let dropped = false
    const isWanted = (one: IndexSpecification): boolean => {
      const other = byName.get(indexName(one))
      return other !== undefined && canBecome(one, other)
    }
    // The server refuses to drop the last index that the shard key leans on.
    let supporting = standing.filter((one) => entry.shardKey && supportsShardKey(one, entry.shardKey))
    for (const one of standing) {
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
   * Gives an expiry, by which nothing expires yet, to the indexes that became TTL on the source. An index that the server
   * refuses to change is dropped, so that it is built again with what else is missing.
   */
  async #addExpiry(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    if (!wanted.some((one) => traitsOf(one).expireAfterSeconds)) return false
    const existing = new Map((await this.#standingIndexes(entry)).map((one) => [indexName(one), one]))
    let changed = false
    for (const one of wanted) {
      const found = existing.get(indexName(one))
      if (!found || !lacksExpiry(found, one)) continue
      this.#insist()
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
   * Views that the source no longer has in this form make room for what takes their name.
   * @param ours those of the destination's views that the sync may touch
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
    const standing = new Map((await this.#views(database)).map((one) => [one.name, one]))
    await this.sharding?.place(database)
    const isAsWanted = ({ name, options }: ListedCollection): boolean => {
      const known = standing.get(name)
      return known !== undefined && Buffer.compare(buildDocument(known.options), buildDocument(options)) === 0
    }
    const changed = wanted.filter((view) => !isAsWanted(view))
    // All of them before the first is made anew: beside the former definition of a view that it is built on, the server may refuse it
    // (167, their collations must agree).
    for (const { name } of changed) if (standing.has(name)) await this.#cluster.write(database, { drop: name })
    for (const view of changed) {
      const options: Document = {}
      for (const { name, value } of view.options) options[name] = new RawValue(value)
      await this.#cluster.write(database, { create: view.name, ...options })
    }
  }

  async #views(database: string): Promise<ListedCollection[]> {
    return (await listCollections(this.#cluster, database)).filter((one) => one.type === 'view')
  }

  async #standingIndexes(entry: CatalogueEntry): Promise<IndexSpecification[]> {
    assert(entry.destinationUUID, 'indexes of a collection that is not created')
    return (await listIndexes(this.#cluster, entry.database, entry.destinationUUID)) ?? []
  }

  async #createIndexes(entry: CatalogueEntry, wanted: IndexSpecification[]): Promise<boolean> {
    this.refusedIndexes.delete(entry.uuid)
    entry.refusedIndexes = []
    if (this.#buildIndexes === 'never' || wanted.length === 0) return false
    const missing = this.missingIndexes(await this.#standingIndexes(entry), wanted)
    if (missing.length === 0) return false
    try {
      await this.#build(entry, missing)
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error) || renamedTo(error) !== undefined) throw error
      // One that cannot be built must not keep the others away; it may fit by the time of the commit.
      for (const one of missing) {
        this.#insist()
        await this.#build(entry, [one]).catch((failure) => this.#remember(entry, one, failure))
      }
    }
    return true
  }

  #remember(entry: CatalogueEntry, specification: IndexSpecification, failure: unknown): void {
    if (codeOf(failure) === undefined || isTransient(failure)) throw failure
    // The server's message may quote a document; only its code is passed on.
    // Twins: while `unique` is held back, two indexes on the same keys are one; buildTwins builds the second at commit.
    if (codeOf(failure) === code.indexOptionsConflict && conflictsWithoutUnique(specification, entry.wanted.indexes))
      return
    entry.refusedIndexes.push(indexName(specification))
    this.refusedIndexes.set(
      entry.uuid,
      `index ${indexName(specification)} of ${namespace(entry.database, entry.name)} (server error ${codeOf(failure)})`,
    )
  }

  async #build(entry: CatalogueEntry, specifications: IndexSpecification[]): Promise<void> {
    const indexes = specifications.map(
      (one) => new RawValue(typedDocument(buildDocument(heldBackIndex(one, entry.wanted.options)))),
    )
    await underPresentName(entry, (name) =>
      this.#cluster.write(entry.database, { createIndexes: name, ...this.#uuid(entry), indexes }, unlimited),
    )
  }

  /** Between two commands, each of which may take long. */
  #insist(): void {
    if (this.isStopped()) throw new StoppedError()
  }

  async #presentName(entry: CatalogueEntry): Promise<string | null> {
    assert(entry.destinationUUID, 'a command for a collection that is not created')
    return await nameOfCollection(this.#cluster, entry.database, entry.destinationUUID)
  }

  #uuid(entry: CatalogueEntry): Document {
    assert(entry.destinationUUID, 'a command for a collection that is not created')
    return { collectionUUID: toUuid(entry.destinationUUID) }
  }
}

/** True when the collection has another index that is the same but for `unique` and other traits held back. */
function conflictsWithoutUnique(specification: IndexSpecification, all: IndexSpecification[]): boolean {
  return all.some((one) => indexName(one) !== indexName(specification) && sameButForName(one, specification))
}
