import type { Catalog } from '../domain/catalog.ts'
import { type IndexSpecification, isCapped } from '../domain/definition.ts'
import { isConversion } from '../domain/namespace-filter.ts'
import { fieldNamed, isTruthy } from '../domain/raw-bson.ts'
import { sameShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { type ListedCollection, listCollections, listIndexesOf } from './listing.ts'
import { type Distribution, distributionsByUuid, type Placement, readPlacements } from './sharding.ts'

export interface DatabaseReadParts {
  source: Cluster
  selection: Selection
  catalog: Catalog
  /** True if both clusters are sharded, so that the shard keys of the source are those of the destination. */
  followsKeys: boolean
}

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
 * @param prefetchMax if the database has at most this many collections, the indexes of all of them are read
 */
export async function readDatabase(
  { source, selection, catalog, followsKeys }: DatabaseReadParts,
  database: string,
  touched: ReadonlySet<string> | 'all',
  prefetchMax: number,
): Promise<DatabaseSnapshot> {
  const [placement = null] = await readPlacements(source, database)
  const everything = await listCollections(source, database)
  const names = new Map(everything.map(({ uuid, name }) => [uuid, name]))
  const selected = await selection.among(database, everything)
  const listed = selected.filter((one) => !isUnfinishedConversion(one))
  const distributions = await distributionsByUuid(source, database)
  const readsAllIndexes = touched === 'all' || listed.length <= prefetchMax
  const isTouched = ({ uuid }: ListedCollection): boolean => {
    const known = catalog.get(uuid)
    if (readsAllIndexes || touched.has(uuid) || !known) return true
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

/**
 * True for a collection that convertToCapped is writing under a temporary name. The inserts into it have no change
 * events. The rename at the end of the command has an event. After that event the collection is converged
 * (`IncompleteCollections`).
 */
export function isUnfinishedConversion({ name, options }: ListedCollection): boolean {
  return isConversion(name) && isCapped(options) && isTruthy(fieldNamed(options, 'temp'))
}
