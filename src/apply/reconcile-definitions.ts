import type { Catalogue, CatalogueEntry } from '../domain/catalogue.ts'
import { type IndexSpecification, traitsOf } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { fieldNamed, isTruthy } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { DestinationDefinitions } from '../mongo/destination-definitions.ts'
import { type ListedCollection, listCollections, listIndexes, readCommitted } from '../mongo/listing.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

/**
 * Definitions are reconciled like documents: a DDL event says *which* database and collection changed; what they are
 * now is read from the source, and the destination is made equal. So a replay is harmless, and so is reading ahead of
 * the stream: collections are known by UUID, a UUID never comes back, and its later events find nothing left to do.
 *
 * Called behind a barrier (no document is on its way). Order: drops, views that must make room, renames (swaps by way
 * of a parking name), creations, options and indexes, views.
 */
export class DefinitionReconciler {
  readonly #source: Cluster
  readonly #catalogue: Catalogue
  readonly #metadata: Metadata
  readonly #destination: DestinationDefinitions
  readonly #context: RetryContext
  readonly #refuseExpiry: boolean

  constructor(parts: {
    source: Cluster
    catalogue: Catalogue
    metadata: Metadata
    destination: DestinationDefinitions
    context: RetryContext
    /** TTL indexes cannot be carried: the verifier would see documents expire on one cluster only. */
    refuseExpiry?: boolean
  }) {
    this.#source = parts.source
    this.#catalogue = parts.catalogue
    this.#metadata = parts.metadata
    this.#destination = parts.destination
    this.#context = parts.context
    this.#refuseExpiry = parts.refuseExpiry ?? false
  }

  /**
   * @param touched UUIDs whose indexes may have changed; 'all' looks at every collection of the database
   * @param newState 'copying' while the initial catalogue is taken; afterwards every document of a new collection comes
   * through the stream, so it is 'copied' from its creation; 'refused' once every event up to the commit point is
   * applied, since one that is new then was created after it
   */
  async reconcile(
    database: string,
    touched: ReadonlySet<string> | 'all',
    newState: CatalogueEntry['state'] | 'refused',
  ): Promise<void> {
    await retry(`following definitions of ${database}`, this.#context, async () => {
      const { listed, indexes } = await readCommitted(this.#source, () => this.#look(database, touched))
      refuseUnsupported(database, listed)
      const collections = listed.filter((one) => one.type === 'collection' && isUserCollection(one.name))
      const views = listed.filter((one) => one.type === 'view')
      const byUuid = new Map(collections.map((one) => [one.uuid, one]))
      if (this.#refuseExpiry) {
        for (const [uuid, found] of indexes) refuseExpiry(database, byUuid.get(uuid)?.name ?? '', found)
      }

      for (const entry of this.#catalogue.inDatabase(database)) {
        if (!byUuid.has(entry.uuid)) await this.#drop(entry)
      }
      await this.#destination.dropViewsExcept(database, views)
      for (const entry of this.#catalogue.inDatabase(database)) {
        const name = byUuid.get(entry.uuid)?.name
        if (entry.destinationUUID || !name || name === entry.name) continue
        // Renamed on the source between our intent to create it and its creation.
        await this.#destination.dropUnborn(database, entry.name)
        entry.name = name
        entry.sourceName = name
      }
      await this.#rename(database, byUuid)
      await this.#create(database, collections, indexes, newState)
      for (const one of collections) {
        const known = this.#catalogue.get(one.uuid)
        if (known) await this.#follow(known, one, indexes.get(one.uuid))
      }
      await this.#destination.followViews(database, views)
    })
  }

  /** One look at a database: its collections, and the indexes of those that are new or touched. */
  async #look(database: string, touched: ReadonlySet<string> | 'all'): Promise<Look> {
    const listed = await listCollections(this.#source, database)
    const indexes = new Map<string, IndexSpecification[]>()
    const wanted = listed.filter(
      (one) =>
        one.type === 'collection' && (touched === 'all' || touched.has(one.uuid) || !this.#catalogue.get(one.uuid)),
    )
    await inParallel(atOnce, wanted, async ({ uuid }) => {
      const found = await listIndexes(this.#source, database, uuid)
      // Dropped since the listing: its drop event follows, and until then it has none.
      indexes.set(uuid, found ?? [])
    })
    return { listed, indexes }
  }

  /** Drops indexes the source no longer has, ahead of the event that says so. True when one was dropped. */
  async dropVanishedIndexes(entry: CatalogueEntry): Promise<boolean> {
    const indexes = await readCommitted(this.#source, () => listIndexes(this.#source, entry.database, entry.uuid))
    if (!indexes) return false
    return await this.#destination.dropIndexesExcept(entry, indexes)
  }

  async #drop(entry: CatalogueEntry): Promise<void> {
    await this.#destination.drop(entry)
    await this.#metadata.removeCollection(entry.uuid)
    this.#catalogue.remove(entry.uuid)
  }

  /** Creates what is new, and what a crash left between intent and creation. */
  async #create(
    database: string,
    collections: ListedCollection[],
    indexes: Look['indexes'],
    state: CatalogueEntry['state'] | 'refused',
  ): Promise<void> {
    const unborn: CatalogueEntry[] = []
    for (const one of collections) {
      const known = this.#catalogue.get(one.uuid)
      if (known?.destinationUUID) continue
      if (state === 'refused') {
        throw new FatalError(
          'UnsupportedChange',
          `${namespace(database, one.name)} was created on the source after the commit point. Stop all writes on the source, ` +
            'then send resume.',
        )
      }
      unborn.push(known ?? newEntry(database, one, indexes.get(one.uuid) ?? [], state))
    }
    if (unborn.length === 0) return
    // The intent first: a collection created and then forgotten by a crash is recognised as ours.
    await this.#metadata.saveCollections(unborn)
    try {
      await inParallel(atOnce, unborn, async (entry) => {
        await this.#destination.create(entry)
      })
      await this.#metadata.saveCollections(unborn)
    } catch (error) {
      // A UUID counts when it is stored; what stands under an unstored one is empty, and created again.
      for (const entry of unborn) entry.destinationUUID = null
      throw error
    }
    for (const entry of unborn) if (!this.#catalogue.get(entry.uuid)) this.#catalogue.add(entry)
  }

  async #follow(
    entry: CatalogueEntry,
    one: ListedCollection,
    indexes: IndexSpecification[] | undefined,
  ): Promise<void> {
    const optionsChanged = await this.#destination.followOptions(entry, one.options)
    const indexesChanged = indexes ? await this.#destination.followIndexes(entry, indexes) : false
    entry.wanted = { options: one.options, indexes: indexes ?? entry.wanted.indexes }
    if (optionsChanged || indexesChanged) await this.#metadata.saveCollection(entry)
  }

  /** Moves every collection to the name the source has for it, parking those that stand in each other's way. */
  async #rename(database: string, byUuid: Map<string, ListedCollection>): Promise<void> {
    const pending = this.#catalogue
      .inDatabase(database)
      .filter((entry) => entry.destinationUUID && byUuid.get(entry.uuid)?.name !== entry.name)
    while (pending.length > 0) {
      const standing = this.#catalogue.inDatabase(database).filter((entry) => entry.destinationUUID)
      const taken = new Set(standing.map((entry) => entry.name))
      const at = pending.findIndex((entry) => !taken.has(targetName(entry)))
      if (at >= 0) {
        const entry = pending.splice(at, 1)[0] as CatalogueEntry
        await this.#move(entry, targetName(entry))
      } else {
        const entry = pending[0] as CatalogueEntry
        await this.#move(entry, `tandem.parked.${Buffer.from(entry.uuid, 'latin1').toString('hex')}`)
      }
    }

    function targetName(entry: CatalogueEntry): string {
      return (byUuid.get(entry.uuid) as ListedCollection).name
    }
  }

  async #move(entry: CatalogueEntry, name: string): Promise<void> {
    await this.#destination.rename(entry, name)
    entry.name = name
    entry.sourceName = name
    await this.#metadata.saveCollection(entry)
  }
}

interface Look {
  listed: ListedCollection[]
  indexes: Map<string, IndexSpecification[]>
}

/** Collections looked at, or created, at a time. */
const atOnce = 8

function newEntry(
  database: string,
  one: ListedCollection,
  indexes: IndexSpecification[],
  state: CatalogueEntry['state'],
): CatalogueEntry {
  return {
    uuid: one.uuid,
    database,
    name: one.name,
    sourceName: one.name,
    destinationUUID: null,
    state,
    wanted: { options: one.options, indexes },
    estimatedBytes: 0,
    copiedBytes: 0,
    planned: false,
    hasTombstones: false,
  }
}

/** Throws when a TTL index is among these: with buildIndexes never it is not built on the destination. */
export function refuseExpiry(database: string, name: string, indexes: IndexSpecification[]): void {
  if (!indexes.some((index) => traitsOf(index).expireAfterSeconds !== undefined)) return
  throw new FatalError(
    'VerificationNotSupported',
    `${namespace(database, name)} has a TTL index, which cannot be verified with buildIndexes "never": documents would expire ` +
      'on the source only. Drop that index, or start anew with "beforeDataCopy" or with "verification": {"enabled": false}.',
  )
}

/** What tandem cannot carry yet, by name, at start and whenever it appears later. */
export function refuseUnsupported(database: string, listed: ListedCollection[]): void {
  for (const { name, type, options } of listed) {
    if (type === 'timeseries' || name.startsWith('system.buckets.')) {
      const plain = name.replace(/^system\.buckets\./, '')
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, plain)} is a time-series collection; change streams do not cover those. Drop it on the source to go on.`,
      )
    }
    if (fieldNamed(options, 'encryptedFields')) {
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, name)} uses Queryable Encryption, which cannot be copied. Drop it on the source to go on.`,
      )
    }
    if (fieldNamed(options, 'clusteredIndex') && fieldNamed(options, 'expireAfterSeconds')) {
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, name)} is a clustered collection with expireAfterSeconds, which cannot be held back until commit. ` +
          'Turn it off on the source (collMod expireAfterSeconds: "off") to go on.',
      )
    }
    if (/^tmp.{5}\.convertToCapped\./.test(name) && isTruthy(fieldNamed(options, 'capped'))) {
      throw unsupportedConversion(database, name)
    }
  }
}

/** convertToCapped writes its copy without change events. */
export function unsupportedConversion(database: string, name: string): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `convertToCapped of ${namespace(database, name.replace(/^tmp.{5}\.convertToCapped\./, ''))} cannot be followed: the server ` +
      'writes the converted collection without change events. Start over with an emptied destination.',
  )
}
