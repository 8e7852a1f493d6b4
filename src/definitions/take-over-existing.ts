import { type Catalogue, type CatalogueEntry, newEntry } from '../domain/catalogue.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { toUuid } from '../mongo/uuid.ts'
import type { DeferredOptions } from './deferred-options.ts'
import { readExisting } from './existing-fate.ts'
import { type ListedCollection, listDatabases, listIndexesOf } from './listing.ts'
import { refuseUnsupported } from './refuse-definitions.ts'

export interface TakeOverParts {
  source: Cluster
  destination: Cluster
  selection: Selection
  catalogue: Catalogue
  metadata: Metadata
  deferredOptions: DeferredOptions
  context: RetryContext
}

/**
 * Prepares a destination that already has data (`existingData: converge`), before its definitions are reconciled for
 * the first time. Collections that can become equal enter the catalogue with the definition that they have, so that the
 * reconciliation changes what differs. All other selected collections and views are dropped. What is not selected is
 * not touched.
 *
 * Repeatable. A collection is ours once its entry is stored, and collections of entries are never dropped here.
 */
export async function takeOverExisting(parts: TakeOverParts): Promise<void> {
  const { destination, selection, catalogue, deferredOptions, context } = parts
  const databases = await retry('listing databases', context, async () =>
    selection.databases(await listDatabases(destination)),
  )
  for (const database of databases) {
    await retry(`taking over ${database}`, context, () => takeOverDatabase(parts, database))
  }
  // A TTL index would delete documents meanwhile, and a unique index would refuse them.
  await deferredOptions.deferAll(catalogue.entries().filter(({ converging }) => converging))
}

async function takeOverDatabase(parts: TakeOverParts, database: string): Promise<void> {
  const { source, destination, selection, catalogue, metadata, context } = parts
  const { wanted, existing } = await readExisting(source, destination, selection, database)
  // Nothing may be dropped for a source that cannot be synced.
  refuseUnsupported(database, wanted)
  const ours = new Set(catalogue.entries().map(({ destinationUUID }) => destinationUUID))
  const pairs: { found: ListedCollection; wanted: ListedCollection }[] = []
  for (const { existing: found, wanted: counterpart, fate } of existing) {
    const { name, type, uuid } = found
    if (type === 'collection' && ours.has(uuid)) continue
    // A crash may have left an intent whose collection was created and is empty. The reconciliation creates it again.
    if (counterpart && catalogue.get(counterpart.uuid)) continue
    if (fate === 'converged' && type === 'view') continue
    if (fate === 'converged' && counterpart) pairs.push({ found, wanted: counterpart })
    else {
      await destination.write(database, { drop: name, ...(uuid && { collectionUUID: toUuid(uuid) }) })
      context.journal?.('existing namespace dropped', { namespace: namespace(database, name), fate })
    }
  }
  const located = pairs.map(({ found }) => ({ database, uuid: found.uuid, name: found.name }))
  const indexes = await listIndexesOf(destination, located)
  const entries = pairs.map(({ found, wanted: one }): CatalogueEntry => {
    const definition = { options: found.options, indexes: indexes.get(found.uuid) ?? [] }
    const entry = newEntry(database, one, definition, 'copying')
    return { ...entry, destinationUUID: found.uuid, converging: true }
  })
  if (entries.length === 0) return
  await metadata.collections.save(entries)
  for (const entry of entries) catalogue.add(entry)
}
