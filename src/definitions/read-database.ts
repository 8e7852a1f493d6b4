import type { Catalogue } from '../domain/catalogue.ts'
import type { IndexSpecification } from '../domain/definition.ts'
import { sameShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { type ListedCollection, listCollections, listIndexesOf } from './listing.ts'
import { type Distribution, type Placement, readDistributions, readPlacements } from './sharding.ts'

export interface LookParts {
  source: Cluster
  selection: Selection
  catalogue: Catalogue
}

/** What a database of the source holds at one moment. */
export interface Look {
  /** What is selected of it. */
  listed: ListedCollection[]
  /** Of all its collections, by UUID. */
  names: Map<string, string>
  indexes: Map<string, IndexSpecification[]>
  /** Of its sharded collections, by UUID. */
  distributions: Map<string, Distribution>
  /** Null for a replica set, and for a database that is gone. */
  placement: Placement | null
}

/**
 * One look at a database: its collections, and the indexes of those that are new or touched.
 * @param aheadMax in a database of no more collections than this the indexes of all of them are looked at
 */
export async function lookAtDatabase(
  { source, selection, catalogue }: LookParts,
  database: string,
  touched: ReadonlySet<string> | 'all',
  aheadMax: number,
): Promise<Look> {
  const [placement = null] = await readPlacements(source, database)
  const everything = await listCollections(source, database)
  const names = new Map(everything.map(({ uuid, name }) => [uuid, name]))
  const listed = await selection.among(database, everything)
  const found = await readDistributions(source, database)
  const distributions = new Map(found.map((one) => [one.uuid, one]))
  const lookAtAll = touched === 'all' || listed.length <= aheadMax
  const isTouched = ({ uuid }: ListedCollection): boolean => {
    const known = catalogue.get(uuid)
    if (lookAtAll || touched.has(uuid) || !known) return true
    return source.sharded && !sameShardKey(known.shardKey, distributions.get(uuid)?.key ?? null)
  }
  const wanted = listed.filter((one) => one.type === 'collection' && isTouched(one))
  // One that was dropped since the listing has none: its drop event follows.
  const indexes = await listIndexesOf(
    source,
    wanted.map(({ uuid, name }) => ({ database, uuid, name })),
  )
  return { listed, names, indexes, distributions, placement }
}
