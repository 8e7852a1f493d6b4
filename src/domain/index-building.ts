import type { CatalogEntry } from './catalog.ts'
import { countIndexes } from './count-indexes.ts'
import type { IndexSpecification } from './definition.ts'
import type { IndexBuilding } from './progress.ts'
import { fieldNamed } from './raw-bson.ts'

/** The indexes of one collection while this instance builds them. */
export interface IndexBuild {
  /** Number of wanted indexes, including those that exist. */
  total: number
  /** Number of wanted indexes that do not exist yet. */
  missing: number
}

type BuiltEntry = Pick<CatalogEntry, 'uuid' | 'destinationUUID' | 'refusedIndexes' | 'awaitsIndexes' | 'wanted'>

/**
 * A cache for the time before the commit: the number of built indexes by list of wanted indexes. The number is valid
 * only for the given names of refused indexes. Progress is read each second, and a catalog may be large.
 */
const knownCounts = new WeakMap<readonly IndexSpecification[], { refused: string; built: number }>()

/**
 * The catalog holds an index once its build has ended, so the catalog that a restart loads gives the same counts.
 * Returns null when there is no index to build.
 * @param underWay builds in progress, by the UUID of the collection on the source. The catalog does not show them yet
 * @param restored the commit has restored the deferred options
 */
export function indexBuildingOf(
  entries: readonly BuiltEntry[],
  underWay: ReadonlyMap<string, IndexBuild>,
  restored: boolean,
): IndexBuilding | null {
  const sum: IndexBuilding = { indexesBuilt: 0, totalIndexesToBuild: 0, collectionsFinished: 0, collectionsTotal: 0 }
  for (const entry of entries) {
    const build = underWay.get(entry.uuid)
    const total = build?.total ?? entry.wanted.indexes.length
    if (total === 0) continue
    const built = build ? total - build.missing : builtOf(entry, restored)
    sum.indexesBuilt += built
    sum.totalIndexesToBuild += total
    sum.collectionsFinished += built === total ? 1 : 0
    sum.collectionsTotal += 1
  }
  return sum.collectionsTotal === 0 ? null : sum
}

function builtOf(entry: BuiltEntry, restored: boolean): number {
  const { destinationUUID, refusedIndexes: refused } = entry
  const { indexes } = entry.wanted
  if (destinationUUID === null || entry.awaitsIndexes) return 0
  if (restored && refused.length === 0) return indexes.length
  if (restored) return countIndexes(indexes, { buildsIndexes: true, refused, restored }).built
  const known = knownCounts.get(indexes)
  const names = refused.join()
  if (known?.refused === names) return known.built
  const isCountable = refused.length === 0 && haveDistinctKeys(indexes)
  const built = isCountable ? indexes.length : countIndexes(indexes, { buildsIndexes: true, refused, restored }).built
  knownCounts.set(indexes, { refused: names, built })
  return built
}

/**
 * True if no two indexes share one index on the destination while options are deferred. This check is faster than
 * `countIndexes`.
 */
function haveDistinctKeys(indexes: readonly IndexSpecification[]): boolean {
  const keys = new Set(indexes.map((one) => fieldNamed(one, 'key')?.toString('latin1')))
  return keys.size === indexes.length
}
