import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { type IndexSpecification, isCapped, sameIndexes } from '../domain/definition.ts'
import { isConversion } from '../domain/namespace-filter.ts'
import { fieldNamed, isTruthy } from '../domain/raw-bson.ts'
import { type ShardKey, sameShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { readIndexesAtOnce } from './list-catalog.ts'
import { type ListedCollection, listCollections, listIndexesOf } from './listing.ts'
import { type Distribution, distributionsByUuid, type Placement, readPlacements } from './sharding.ts'

export interface DatabaseReadParts {
  source: Cluster
  selection: Selection
  catalog: Catalog
  /** True if both clusters are sharded, so that the shard keys of the source are those of the destination. */
  followsKeys: boolean
  /** Returns those of a collection's indexes that the sync creates and compares. They depend on its shard key. */
  included: (all: IndexSpecification[], shardKey: ShardKey | null) => IndexSpecification[]
}

/**
 * The indexes of a database with at most this many collections are prefetched with listIndexes. In a larger database,
 * one `$listCatalog` shows which collections have changed indexes.
 */
const listedMax = 32

/** The definitions of one source database as of one read. */
export interface DatabaseSnapshot {
  /** The selected collections and views, without those that convertToCapped is still writing. */
  listed: ListedCollection[]
  /** The names of all collections, selected or not, by UUID. */
  names: Map<string, string>
  indexes: Map<string, IndexSpecification[]>
  /** The collections that the config servers track, by UUID. */
  distributions: Map<string, Distribution>
  /** Null for a replica set and for a database that does not exist. */
  placement: Placement | null
}

/**
 * Reads the collections of a database, and the indexes of those that are new, are in `touched`, or have a shard key
 * that differs from the one in the catalog.
 * @param prefetches true if the changed indexes of all other collections are read too. In a large database this is
 * possible only if `$listCatalog` is usable.
 */
export async function readDatabase(
  parts: DatabaseReadParts,
  database: string,
  touched: ReadonlySet<string> | 'all',
  prefetches: boolean,
): Promise<DatabaseSnapshot> {
  const { source, selection, catalog, followsKeys } = parts
  const [placement = null] = await readPlacements(source, database)
  const everything = await listCollections(source, database)
  const names = new Map(everything.map(({ uuid, name }) => [uuid, name]))
  const selected = await selection.among(database, everything)
  const listed = selected.filter((one) => !isUnfinishedConversion(one))
  const distributions = await distributionsByUuid(source, database)
  const readsAllIndexes = touched === 'all' || (prefetches && listed.length <= listedMax)
  const changed = prefetches && !readsAllIndexes ? await withChangedIndexes(parts, database) : new Set<string>()
  const isTouched = ({ uuid }: ListedCollection): boolean => {
    const known = catalog.get(uuid)
    if (readsAllIndexes || touched.has(uuid) || changed.has(uuid) || !known) return true
    return followsKeys && !sameShardKey(known.shardKey, distributions.get(uuid)?.key ?? null)
  }
  const wanted = listed.filter((one) => one.type === 'collection' && isTouched(one))
  // A collection that was dropped after the listing has no indexes. Its drop event follows.
  const indexes = await listIndexesOf(
    source,
    wanted.map(({ uuid, name }) => ({ database, uuid, name })),
  )
  return { listed, names, indexes, distributions, placement }
}

/** Returns the UUIDs of the collections in the catalog whose indexes seem to differ from those in the catalog. */
async function withChangedIndexes(
  { source, catalog, included }: DatabaseReadParts,
  database: string,
): Promise<Set<string>> {
  const found = await readIndexesAtOnce(source, database)
  const isChanged = ({ uuid, shardKey, wanted }: CatalogEntry): boolean => {
    const indexes = found?.get(uuid)
    return indexes !== undefined && !sameIndexes(included(indexes, shardKey), wanted.indexes)
  }
  return new Set([...catalog.inDatabase(database)].filter(isChanged).map(({ uuid }) => uuid))
}

/**
 * True for a collection that convertToCapped is writing under a temporary name. The inserts into it have no change
 * events. The rename at the end of the command has an event. After that event the collection is converged
 * (`IncompleteCollections`).
 */
export function isUnfinishedConversion({ name, options }: ListedCollection): boolean {
  return isConversion(name) && isCapped(options) && isTruthy(fieldNamed(options, 'temp'))
}
