import type { CatalogEntry } from './catalog.ts'
import { countIndexes } from './count-indexes.ts'
import type { IndexSpecification } from './definition.ts'
import type { IndexBuilding } from './progress.ts'
import { fieldNamed } from './raw-bson.ts'

/** The indexes of one collection while this instance builds them. */
export interface IndexBuild {
  /** Number of indexes that the collection is to have on the destination, including those that exist there. */
  total: number
  /** Number of these indexes that do not exist on the destination yet. */
  missing: number
}

type BuiltEntry = Pick<CatalogEntry, 'uuid' | 'destinationUUID' | 'refusedIndexes' | 'awaitsIndexes' | 'wanted'>

/**
 * Caches the number of built indexes for each list of wanted indexes, because progress is read each second and a
 * catalog may be large. A number is valid only until the commit, and only while the same indexes are refused.
 */
const knownCounts = new WeakMap<readonly IndexSpecification[], { refused: string; built: number }>()

/**
 * Counts the built indexes of all collections; null if there is no index to build. The catalog shows an index as built
 * when its build has ended, so the counts are the same after a restart.
 * @param underWay builds in progress, which the catalog does not show yet, by the UUID of the collection on the source
 * @param restored true if the commit has restored the deferred options
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
  const areAllBuilt = refused.length === 0 && haveDistinctKeys(indexes)
  const built = areAllBuilt ? indexes.length : countIndexes(indexes, { buildsIndexes: true, refused, restored }).built
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
