import {
  type CollectionDefinition,
  type DeferredIndexOptions,
  deferredOptionsOf,
  differOnlyInDeferredOptions,
  type IndexSpecification,
  indexName,
  neverExpires,
  sameIndexes,
  sameNumber,
} from './definition.ts'
import { numberOf } from './raw-bson.ts'

/** An index that is not the same on all shards that own chunks of its collection. */
export interface UnevenIndex {
  name: string
  /** Its specification on each shard that has built it. */
  found: IndexSpecification[]
  /** Names of the shards that do not have it, or have not finished building it. */
  missingOn: string[]
}

/** The secondary indexes that a collection has on a cluster. */
export interface ExistingIndexes {
  /**
   * The finished indexes. In a sharded collection, only the indexes that exist on every shard that owns chunks, and whose
   * specifications are the same on all of these shards except for deferred options.
   */
  indexes: IndexSpecification[]
  /** The indexes that differ between shards. Absent if there are none. */
  uneven?: readonly UnevenIndex[]
}

/** The definition that a collection has on a cluster. */
export interface ExistingDefinition extends CollectionDefinition, ExistingIndexes {}

/**
 * Returns the indexes that are not the same on all shards.
 * @param onShards the finished and the unfinished indexes of each shard that owns chunks, by the shard's name
 */
export function unevenIndexes(
  onShards: ReadonlyMap<string, { finished: IndexSpecification[]; unfinished: readonly string[] }>,
): UnevenIndex[] {
  const byName = new Map<string, Map<string, IndexSpecification>>()
  for (const [shard, { finished, unfinished }] of onShards) {
    for (const name of unfinished) if (!byName.has(name)) byName.set(name, new Map())
    for (const one of finished) {
      const name = indexName(one)
      byName.set(name, (byName.get(name) ?? new Map()).set(shard, one))
    }
  }
  return [...byName].flatMap(([name, ofShards]): UnevenIndex[] => {
    const found = [...ofShards.values()]
    // An index that no shard has finished is not uneven: listIndexes does not show it either.
    const [first] = found
    if (!first) return []
    const missingOn = [...onShards.keys()].filter((shard) => !ofShards.has(shard)).sort()
    const isEven = missingOn.length === 0 && found.every((one) => sameIndexes([one], [first]))
    return isEven ? [] : [{ name, found, missingOn }]
  })
}

/** @param listed the finished indexes as the router lists them: the router asks only one shard */
export function existingIndexes(listed: IndexSpecification[], uneven: readonly UnevenIndex[] = []): ExistingIndexes {
  if (uneven.length === 0) return { indexes: listed }
  const incomplete = new Set(uneven.filter(isIncomplete).map(({ name }) => name))
  return { indexes: listed.filter((one) => !incomplete.has(indexName(one))), uneven }
}

/**
 * True if collMod cannot make the index the same on all shards. It is missing on a shard, so createIndexes has to be sent
 * again, or it differs in an option that is not deferred, so it has to be dropped first.
 */
export function isIncomplete({ found, missingOn }: UnevenIndex): boolean {
  const [first] = found
  return missingOn.length > 0 || !first || !found.every((one) => differOnlyInDeferredOptions(one, first))
}

/** Returns the specifications of each index by its name: those of all shards that have it if they differ, otherwise one. */
export function foundSpecifications({ indexes, uneven = [] }: ExistingIndexes): Map<string, IndexSpecification[]> {
  const found = new Map(indexes.map((one) => [indexName(one), [one]]))
  for (const one of uneven) found.set(one.name, one.found)
  return found
}

/**
 * Returns the deferred options of an index that may differ between shards. If they are not the options that the caller
 * wants, it changes the index by collMod, which applies to all shards.
 * @param toward `restoring`: an option counts as set only if it is set on every shard; `deferring`: if it is set on any
 */
export function deferredOptionsOn(
  found: readonly IndexSpecification[],
  toward: 'restoring' | 'deferring',
): DeferredIndexOptions {
  const all = found.map(deferredOptionsOf)
  const some = (name: 'unique' | 'prepareUnique' | 'hidden'): boolean => all.some((one) => one[name])
  const every = (name: 'unique' | 'hidden'): boolean => all.every((one) => one[name])
  const expiries = all.map(({ expireAfterSeconds }) => expireAfterSeconds)
  if (toward === 'deferring') {
    const expiry = expiries.find((one) => one && numberOf(one) !== neverExpires) ?? expiries.find((one) => one)
    return {
      ...{ unique: some('unique'), prepareUnique: some('prepareUnique'), hidden: some('hidden') },
      expireAfterSeconds: expiry,
    }
  }
  const unique = every('unique')
  return {
    unique,
    // A shard whose index is unique rejects duplicates too.
    prepareUnique: unique ? some('prepareUnique') : all.every((one) => one.unique || one.prepareUnique),
    hidden: every('hidden'),
    expireAfterSeconds: expiries.every((one) => sameNumber(one, expiries[0])) ? expiries[0] : undefined,
  }
}
