import type { Document } from 'mongodb'
import pLimit from 'p-limit'
import type { BuildIndexes } from '../domain/build-indexes.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { collModOptions, optionsWhileDeferred } from '../domain/definition.ts'
import { assert, FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { NamespaceRemap } from '../domain/namespace-remap.ts'
import { notLost } from '../domain/not-lost.ts'
import { buildDocument, type RawFields } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { underPresentName } from '../mongo/collection-name.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'
import { createNamespace, withoutCaseConflict } from './create-namespace.ts'
import { DestinationIndexes } from './destination-indexes.ts'
import type { DestinationSharding } from './destination-sharding.ts'
import { type ListedCollection, listCollections, listNamed, listViews, nameOfCollection } from './listing.ts'
import { refuseLongName } from './refuse-definitions.ts'

/**
 * Number of collections of a database that are created in parallel. While several creations wait for each other, a server of
 * 6.0 copies its list of all collections only once for them.
 */
const createdAtOnce = 16
/**
 * Number of collections that are created in parallel in all databases. A blocked creation keeps its connection, and the lease
 * needs one of the 64 that the driver opens to a cluster.
 */
const createdInAllAtOnce = 32
/** Number of new collections whose indexes are built, or that are sharded, in parallel. */
const completedAtOnce = 8

/**
 * Writes definitions to the destination without their deferred options. Every command on an existing collection names
 * its UUID, and every method is repeatable: it recognizes what is already done.
 */
export class DestinationDefinitions {
  readonly #cluster: Cluster
  /** Null if the destination is a replica set. */
  readonly sharding: DestinationSharding | null
  readonly indexes: DestinationIndexes
  readonly #creations = pLimit(createdInAllAtOnce)
  /** Returns true if a destination UUID belongs to a collection in the catalog. */
  isOurs: (uuid: string) => boolean = () => false

  constructor(destination: Cluster, buildIndexes: BuildIndexes, sharding: DestinationSharding | null = null) {
    this.#cluster = destination
    this.indexes = new DestinationIndexes(destination, buildIndexes)
    this.sharding = sharding
  }

  get names(): NamespaceRemap {
    return this.#cluster.names
  }

  /**
   * Creates the collections of one database, sets `destinationUUID` of each entry, builds the indexes (unless they are built
   * after the copy), and shards the collections whose entry has a shard key. Reads the UUIDs of all of them with one command,
   * because over distance a command for each collection takes as long as its creation.
   */
  async create(database: string, entries: readonly CatalogEntry[]): Promise<void> {
    await this.#assignPrimary(database)
    await inParallel(createdAtOnce, [...entries], (entry) => this.#creations(() => this.#createEmpty(entry)))
    const names = entries.map(({ name }) => name)
    const created = new Map((await listNamed(this.#cluster, database, names)).map(({ name, uuid }) => [name, uuid]))
    for (const entry of entries) {
      const uuid = created.get(entry.name)
      if (uuid === undefined) throw new TransientReplyError(`${entry.name} is not listed right after its creation`)
      entry.destinationUUID = uuid
    }
    await inParallel(completedAtOnce, [...entries], async (entry) => {
      await this.indexes.create(entry)
      // shardCollection builds a missing index for the shard key, because the collection is still empty.
      await this.sharding?.distribute(entry)
    })
  }

  async #createEmpty(entry: CatalogEntry): Promise<void> {
    const options: Document = {}
    for (const { name, value } of optionsWhileDeferred(entry.wanted.options)) options[name] = new RawValue(value)
    const create = () => createNamespace(this.#cluster, entry.database, entry.name, options, this.isOurs)
    try {
      await create()
    } catch (error) {
      if (codeOf(error) !== code.namespaceExists) throw error
      await this.dropUnrecorded(entry.database, entry.name)
      await create()
    }
  }

  /**
   * Drops a collection that tandem created before it crashed and whose UUID it did not store. Such a collection is
   * empty. Throws FatalError DestinationConflict for a view or a collection with documents, which tandem did not
   * create.
   */
  async dropUnrecorded(database: string, name: string): Promise<void> {
    const [found] = await listCollections(this.#cluster, database, name)
    // One of tandem's collections may have been renamed to this name in the meantime.
    if (!found || this.isOurs(found.uuid)) return
    const conflict = new FatalError(
      'DestinationConflict',
      `creating ${this.#cluster.names.shown(namespace(database, name))} on the destination: a collection or view with that name exists there ` +
        `and is not tandem's. Stop the program that writes there, drop that namespace on the destination and send ` +
        `resume. ${notLost.source}`,
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

  async drop(entry: CatalogEntry): Promise<void> {
    if (!entry.destinationUUID) return await this.dropUnrecorded(entry.database, entry.name)
    await underPresentName(entry, (name) => this.#cluster.write(entry.database, { drop: name, ...this.#uuid(entry) }))
  }

  async rename(entry: CatalogEntry, name: string): Promise<void> {
    await underPresentName(entry, async (known) => {
      // Through mongos, renameCollection accepts a UUID but does not check it (measured on 6.0.27).
      const present = this.#cluster.sharded ? await this.#presentName(entry) : known
      if (present === name || present === null) return
      if (this.sharding && entry.shardKey) refuseLongName(this.names, namespace(entry.database, name), true)
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
   * @param before the destination's options, from the catalog or as read from the destination
   */
  async followOptions(entry: CatalogEntry, options: RawFields, before = entry.wanted.options): Promise<boolean> {
    const changes: Document = {}
    for (const { name, value } of collModOptions(before, options)) changes[name] = new RawValue(value)
    if (Object.keys(changes).length > 0) {
      await underPresentName(entry, (name) =>
        this.#cluster.write(entry.database, { collMod: name, ...this.#uuid(entry), ...changes }),
      )
    }
    return Buffer.compare(buildDocument(before), buildDocument(options)) !== 0
  }

  /**
   * Drops the views that the source no longer has, so that other namespaces can take their names.
   * @param ours the destination's views that the sync may change
   */
  async dropViewsExcept(database: string, wanted: ListedCollection[], ours: ListedCollection[]): Promise<void> {
    const names = new Set(wanted.map((one) => one.name))
    for (const view of ours) {
      if (!names.has(view.name)) await this.#cluster.write(database, { drop: view.name })
    }
  }

  async followViews(database: string, wanted: ListedCollection[]): Promise<void> {
    if (wanted.length === 0) return
    const existing = new Map((await this.views(database)).map((one) => [one.name, one]))
    await this.#assignPrimary(database)
    const isUnchanged = ({ name, options }: ListedCollection): boolean => {
      const known = existing.get(name)
      return known !== undefined && Buffer.compare(buildDocument(known.options), buildDocument(options)) === 0
    }
    const changed = wanted.filter((view) => !isUnchanged(view))
    // All changed views are dropped before the first is created again. The server refuses a view whose collation
    // differs from that of the view on which it is defined (error 167), and that view could still have its old
    // definition.
    for (const { name } of changed) if (existing.has(name)) await this.#cluster.write(database, { drop: name })
    for (const view of changed) {
      const options: Document = {}
      for (const { name, value } of view.options) options[name] = new RawValue(value)
      await createNamespace(this.#cluster, database, view.name, options, this.isOurs)
    }
  }

  async views(database: string): Promise<ListedCollection[]> {
    return await listViews(this.#cluster, database)
  }

  /** On a sharded destination, creates the database on a chosen primary shard unless it exists. */
  async #assignPrimary(database: string): Promise<void> {
    const { sharding } = this
    if (!sharding) return
    await withoutCaseConflict(this.#cluster, database, () => sharding.assignPrimary(database), this.isOurs)
  }

  async #presentName(entry: CatalogEntry): Promise<string | null> {
    assert(entry.destinationUUID, 'a command names a collection that has not been created')
    return await nameOfCollection(this.#cluster, entry.database, entry.destinationUUID)
  }

  #uuid(entry: CatalogEntry): Document {
    assert(entry.destinationUUID, 'a command names a collection that has not been created')
    return { collectionUUID: toUuid(entry.destinationUUID) }
  }
}
