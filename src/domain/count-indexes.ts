import type { IndexCounts } from './collection-figures.ts'
import { deferredOptionsOf, type IndexSpecification, indexName, sameButForName } from './definition.ts'

/** Counts how many indexes of a collection exist on the destination and how many are deferred until the commit. */

export interface BuildState {
  /** True if the collection exists on the destination and tandem builds its indexes. */
  buildsIndexes: boolean
  /** Names of the indexes that the destination has refused, or that are built after the copy. */
  refused: readonly string[]
  /** True if the commit has applied the deferred options. */
  restored: boolean
}

export function countIndexes(wanted: readonly IndexSpecification[], state: BuildState): IndexCounts {
  const { buildsIndexes, refused, restored } = state
  const counts: IndexCounts = { total: wanted.length, built: 0, heldBack: 0, missing: 0 }
  if (!buildsIndexes) return counts
  for (const [at, one] of wanted.entries()) {
    if (refused.includes(indexName(one))) counts.missing += 1
    // While options are deferred, indexes that differ only in these options share one index on the destination.
    else if (!restored && wanted.slice(0, at).some((other) => sameButForName(other, one))) counts.heldBack += 1
    else {
      counts.built += 1
      if (!restored && hasDeferredOptions(one)) counts.heldBack += 1
    }
  }
  return counts
}

function hasDeferredOptions(one: IndexSpecification): boolean {
  const { unique, prepareUnique, hidden, expireAfterSeconds } = deferredOptionsOf(one)
  return unique || prepareUnique || hidden || expireAfterSeconds !== undefined
}
