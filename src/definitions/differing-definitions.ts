import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { type CollectionDefinition, type IndexSpecification, sameIndexes } from '../domain/definition.ts'
import type { ExistingDefinition } from '../domain/existing-indexes.ts'
import { isUserCollection } from '../domain/namespace.ts'
import { buildDocument } from '../domain/raw-bson.ts'
import { type ShardKey, sameShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { type BothCatalogs, readBothCatalogs } from './both-catalogs.ts'
import type { ServerCatalogEntry } from './list-catalog.ts'
import type { Distribution, Placement } from './sharding.ts'

export interface DifferingParts {
  source: Cluster
  destination: Cluster
  selection: Selection
  catalog: Catalog
  /** Returns true if the destination needs no change. It sends no commands. */
  isFollowed: (entry: CatalogEntry, existing: ExistingDefinition, wanted: CollectionDefinition) => boolean
  /** Returns those of a collection's indexes that the sync creates and compares. They depend on its shard key. */
  included: (all: IndexSpecification[], shardKey: ShardKey | null) => IndexSpecification[]
  /** Returns the databases of a sharded source that were moved, or created again, since their placement was stored. */
  moved: (placements: Placement[]) => Promise<string[]>
}

export interface Differing {
  /** Databases whose definitions differ, each with the UUIDs of the collections whose indexes must be read. */
  databases: Map<string, Set<string>>
  /** The destination's collections, by destination UUID. */
  existing: Map<string, ExistingDefinition>
}

/**
 * Compares the catalogs of both clusters with the catalog of the sync, in memory. The result says which databases
 * DefinitionReconciler must read. This function changes nothing, so a false difference only costs time.
 * @param read the catalogs, if they were just read; otherwise this function reads them
 */
export async function findDiffering(parts: DifferingParts, read?: BothCatalogs): Promise<Differing> {
  const { source, selection, catalog } = parts
  const both = read ?? (await readBothCatalogs(parts, selection))
  const { catalog: sourceCatalog, distributions, placements } = both.source
  const destinationCatalog = both.destination.catalog
  const moved = new Set(source.sharded ? await parts.moved(placements) : [])
  const [selected, selectedExisting] = await Promise.all([
    selection.amongAll(sourceCatalog),
    selection.amongAll(destinationCatalog),
  ])
  const distributionOf = new Map(distributions.map((one) => [one.uuid, one]))
  const existingByUuid = new Map<string, ServerCatalogEntry>()
  for (const one of [...destinationCatalog.values()].flat()) if (one.uuid !== '') existingByUuid.set(one.uuid, one)
  const known = catalog.byDatabase()
  const databases: Differing['databases'] = new Map()
  for (const database of new Set([...selected.keys(), ...known.keys()])) {
    const listed = selected.get(database) ?? []
    const byUuid = new Map(listed.map((one) => [one.uuid, one]))
    const isDiffering = (entry: CatalogEntry): boolean => {
      const wanted = byUuid.get(entry.uuid)
      const existing = existingByUuid.get(entry.destinationUUID ?? '')
      if (!wanted || !existing) return true
      if (!isAsKnown(entry, wanted, existing, parts.included(wanted.indexes, entry.shardKey))) return true
      if (source.sharded && !isAsDistributed(entry, distributionOf.get(entry.uuid), parts.destination.sharded))
        return true
      return !parts.isFollowed(entry, existing, wanted)
    }
    const touched = new Set((known.get(database) ?? []).filter(isDiffering).map(({ uuid }) => uuid))
    const hasUnknown = listed.some(({ type, uuid }) => type !== 'view' && !catalog.get(uuid))
    const hasOtherViews = !sameViews(listed, selectedExisting.get(database) ?? [])
    if (touched.size > 0 || hasUnknown || hasOtherViews || moved.has(database)) databases.set(database, touched)
  }
  return { databases, existing: existingByUuid }
}

/**
 * True if the stored entry has the source's current definition, and both collections have the name in the entry.
 * @param indexes the indexes of the source's collection that the sync includes
 */
function isAsKnown(
  entry: CatalogEntry,
  wanted: ServerCatalogEntry,
  existing: ServerCatalogEntry,
  indexes: IndexSpecification[],
): boolean {
  return (
    wanted.type === 'collection' &&
    isUserCollection(wanted.name) &&
    wanted.name === entry.name &&
    wanted.name === entry.sourceName &&
    wanted.name === existing.name &&
    buildDocument(wanted.options).equals(buildDocument(entry.wanted.options)) &&
    sameIndexes(indexes, entry.wanted.indexes)
  )
}

function isAsDistributed(entry: CatalogEntry, found: Distribution | undefined, hasKeys: boolean): boolean {
  if (found?.resharding) return false
  return !hasKeys || sameShardKey(entry.shardKey, found?.key ?? null)
}

function sameViews(source: ServerCatalogEntry[], destination: ServerCatalogEntry[]): boolean {
  const existing = new Map(destination.filter(isView).map((one) => [one.name, buildDocument(one.options)]))
  const wanted = source.filter(isView)
  return (
    wanted.length === existing.size &&
    wanted.every(({ name, options }) => existing.get(name)?.equals(buildDocument(options)) ?? false)
  )
}

function isView({ type }: ServerCatalogEntry): boolean {
  return type === 'view'
}
