import type { IndexCounts } from './collection-figures.ts'
import { type IndexSpecification, indexName, sameButForName, traitsOf } from './definition.ts'

/** How many of a collection's indexes stand on the destination, and how many wait for the commit. */

export interface IndexStand {
  /** The collection is on the destination, and its indexes are to be. */
  built: boolean
  /** Names that the destination has refused. */
  refused: readonly string[]
  /** The commit has put back what was held back. */
  restored: boolean
}

export function countIndexes(wanted: readonly IndexSpecification[], stand: IndexStand): IndexCounts {
  const { built, refused, restored } = stand
  const counts: IndexCounts = { total: wanted.length, built: 0, heldBack: 0, missing: 0 }
  if (!built) return counts
  for (const [at, one] of wanted.entries()) {
    if (refused.includes(indexName(one))) counts.missing += 1
    // While traits are held back, one index stands for two that differ in nothing else.
    else if (!restored && wanted.slice(0, at).some((other) => sameButForName(other, one))) counts.heldBack += 1
    else {
      counts.built += 1
      if (!restored && isHeldBack(one)) counts.heldBack += 1
    }
  }
  return counts
}

function isHeldBack(one: IndexSpecification): boolean {
  const { unique, prepareUnique, hidden, expireAfterSeconds } = traitsOf(one)
  return unique || prepareUnique || hidden || expireAfterSeconds !== undefined
}
