import { type Catalog, type CatalogEntry, newEntry } from '../domain/catalog.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selects } from '../mongo/selection.ts'
import { toUuid } from '../mongo/uuid.ts'
import type { DeferredOptions } from './deferred-options.ts'
import type { DestinationDefinitions } from './destination-definitions.ts'
import { readExisting } from './existing-fate.ts'
import { type ListedCollection, listDatabases, listIndexesOf } from './listing.ts'
import { refuseUnsupported } from './refuse-definitions.ts'
import { type Distribution, type ShardingEntries, throwIfResharding } from './sharding.ts'

export interface TakeOverParts {
  source: Cluster
  destination: Cluster
  /** Selects the namespaces that may be taken over or dropped. */
  selection: Selects
  catalog: Catalog
  metadata: Metadata
  deferredOptions: DeferredOptions
  destinationDefinitions: DestinationDefinitions
  context: RetryContext
  /** The collections that the start request shards on the destination of a replica set. */
  shardingEntries: ShardingEntries
}

/**
 * Prepares a destination that already has data, at the start of a sync (`existingData: converge`) and when the filters
 * of the sync are changed. It must be called before definitions are reconciled. A collection that can be made equal to
 * its counterpart on the source enters the catalog with its existing definition, so that the reconciliation changes only
 * what differs. A view is kept if the source has a selected view with the same name. All other selected collections and
 * views are dropped. A time-series collection that the sync skips is also dropped if a selected namespace of the source
 * has its name. No other namespace is changed.
 *
 * The call may be repeated: a collection whose entry is stored belongs to tandem and is not dropped.
 */
export async function takeOverExisting(parts: TakeOverParts): Promise<void> {
  const { destination, selection, catalog, deferredOptions, context } = parts
  const databases = await retry('listing databases', context, async () =>
    selection.databases(await listDatabases(destination)),
  )
  for (const database of databases) {
    await retry(`taking over ${database}`, context, () => takeOverDatabase(parts, database))
  }
  // During the sync, a TTL index would delete documents, and a unique index would refuse documents. These options are
  // therefore deferred until the commit.
  await deferredOptions.deferAll(catalog.entries().filter(({ converging }) => converging))
}

async function takeOverDatabase(parts: TakeOverParts, database: string): Promise<void> {
  const { source, destination, selection, catalog, metadata, context, shardingEntries } = parts
  const awaitsIndexes = parts.destinationDefinitions.indexes.afterCopy
  const { wanted, existing } = await readExisting(source, destination, selection, database, shardingEntries)
  // Nothing may be dropped for a source that cannot be synced.
  refuseUnsupported(database, wanted, destination.names)
  const ours = new Set(catalog.entries().map(({ destinationUUID }) => destinationUUID))
  const pairs: { found: ListedCollection; wanted: ListedCollection; distribution: Distribution | null }[] = []
  for (const { existing: found, wanted: counterpart, distribution, fate } of existing) {
    const { name, type, uuid } = found
    if (type === 'collection' && ours.has(uuid)) continue
    const known = counterpart && catalog.get(counterpart.uuid)
    // After a crash, an entry may have no destination UUID although its collection was created. That collection is
    // empty, and the reconciliation drops it and creates it again.
    if (known && !known.destinationUUID) continue
    if (fate === 'converged' && type === 'view') continue
    throwIfResharding(destination, distribution)
    // If `known` is set, the catalog assigns another collection of the destination to the counterpart, usually under a
    // former name. The namespace that was found is dropped, so that the reconciliation can rename that collection.
    if (fate === 'converged' && counterpart && !known) pairs.push({ found, wanted: counterpart, distribution })
    else {
      await destination.write(database, { drop: name, ...(uuid && { collectionUUID: toUuid(uuid) }) })
      const dropped = namespace(database, name)
      const { names } = destination
      const logged = { namespace: dropped, ...names.differing(dropped), fate: known ? 'replaced' : fate }
      context.journal?.('existing namespace dropped', logged)
    }
  }
  const located = pairs.map(({ found }) => ({ database, uuid: found.uuid, name: found.name }))
  const indexes = await listIndexesOf(destination, located)
  const entries = pairs.map(({ found, wanted: one, distribution }): CatalogEntry => {
    const definition = { options: found.options, indexes: indexes.get(found.uuid) ?? [] }
    const entry = newEntry(database, one, definition, 'copying')
    const shardKey = distribution?.key ?? null
    return { ...entry, destinationUUID: found.uuid, converging: true, awaitsIndexes, shardKey }
  })
  if (entries.length === 0) return
  await metadata.collections.save(entries)
  for (const entry of entries) catalog.add(entry)
}
