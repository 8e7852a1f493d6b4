import {
  deferredOptionsOf,
  differOnlyInDeferredOptions,
  hasMaximum,
  type IndexSpecification,
  ignoredOptions,
  indexName,
  indexWhileDeferred,
  isCapped,
  optionsWhileDeferred,
  sameButForName,
  sameNumber,
  sameOption,
} from '../domain/definition.ts'
import { type ExistingIndexes, foundSpecifications, isIncomplete } from '../domain/existing-indexes.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import { namespace } from '../domain/namespace.ts'
import { fieldNamed, type RawFields } from '../domain/raw-bson.ts'
import { type ShardKey, sameShardKey, supportsShardKey } from '../domain/shard-key.ts'

/** One listed namespace: a collection with its indexes, or a view. */
export interface ListedDefinition extends ExistingIndexes {
  name: string
  type: string
  options: RawFields
  /** Secondary indexes; empty for views. */
  indexes: IndexSpecification[]
  /** The shard key that the collection has or will get; null if it is not sharded. */
  shardKey: ShardKey | null
}

/**
 * The phase of a sync in which definitions are compared.
 *
 * deferred   When a commit begins to prepare the destination, which does not have the deferred options yet.
 * prepared   When the verifier issues its verdict, the comparison on which the commit depends: capped sizes are
 *            restored, unique indexes are `prepareUnique`, and no document expires yet.
 */
export type DefinitionStage = 'deferred' | 'prepared'

/**
 * Returns the differences in the definitions of one database. Missing indexes count only when the sync builds indexes.
 */
export function compareDefinitions(
  database: string,
  source: ListedDefinition[],
  destination: ListedDefinition[],
  stage: DefinitionStage,
  buildsIndexes: boolean,
): Mismatch[] {
  const mismatches: Mismatch[] = []
  const unmatched = new Map(destination.map((one) => [one.name, one]))
  for (const wanted of source) {
    const existing = unmatched.get(wanted.name)
    unmatched.delete(wanted.name)
    const name = namespace(database, wanted.name)
    if (!existing || existing.type !== wanted.type) {
      mismatches.push({ namespace: name, kind: 'collection' })
      continue
    }
    for (const field of differingOptions(wanted, existing, stage))
      mismatches.push({ namespace: name, kind: 'option', field })
    if (!sameShardKey(wanted.shardKey, existing.shardKey)) {
      mismatches.push({ namespace: name, kind: 'option', field: 'shardKey' })
    }
    for (const field of differingIndexes(wanted, existing, stage, buildsIndexes)) {
      mismatches.push({ namespace: name, kind: 'index', field })
    }
  }
  for (const name of unmatched.keys()) {
    mismatches.push({ namespace: namespace(database, name), kind: 'collection', by: 'foreignWrite' })
  }
  return mismatches
}

function differingOptions(wanted: ListedDefinition, existing: ListedDefinition, stage: DefinitionStage): string[] {
  const expected = expectedOptions(wanted, stage)
  const names = new Set([...expected, ...existing.options].map(({ name }) => name))
  return [...names].filter((name) => {
    if (ignoredOptions.has(name)) return false
    const one = fieldNamed(expected, name)
    const other = fieldNamed(existing.options, name)
    if (isCapped(wanted.options) && (name === 'size' || name === 'max')) {
      return !sameNumber(one, other) && !(name === 'max' && !hasMaximum(one) && !hasMaximum(other))
    }
    return !sameOption(name, one, other)
  })
}

/**
 * Returns the options that the destination must have. Documents may expire only after the verdict, so at both stages
 * the destination's collection has no expiry.
 */
function expectedOptions({ type, options }: ListedDefinition, stage: DefinitionStage): RawFields {
  if (type !== 'collection') return options
  return stage === 'deferred'
    ? optionsWhileDeferred(options)
    : options.filter(({ name }) => name !== 'expireAfterSeconds')
}

function differingIndexes(
  wanted: ListedDefinition,
  existing: ListedDefinition,
  stage: DefinitionStage,
  buildsIndexes: boolean,
): string[] {
  const names: string[] = []
  const byName = foundSpecifications(existing)
  const incomplete = new Set(existing.uneven?.filter(isIncomplete).map(({ name }) => name))
  for (const index of wanted.indexes) {
    const found = byName.get(indexName(index))
    byName.delete(indexName(index))
    if (!found || incomplete.has(indexName(index))) {
      // Before the preparation, the index may still be built. `prepareToWrite` reports an index that cannot be built.
      // Of two indexes that conflict (`conflictsWhileDeferred`), a missing unique one is built before the verdict, and
      // a missing non-unique one only after the other has become unique.
      const mayStillAppear = stage === 'deferred' || conflictsWhileDeferred(index, wanted.indexes)
      if (buildsIndexes && !mayStillAppear) names.push(indexName(index))
    } else if (!found.every((one) => sameIndex(index, one, wanted.options, stage))) names.push(indexName(index))
  }
  const added = [...byName].filter(([, found]) => !found.every((one) => isOwnShardKeyIndex(one, wanted)))
  return [...names, ...added.map(([name]) => name)]
}

/**
 * True if the index supports the shard key and no index of the source does: the sharded destination has built it
 * itself.
 */
function isOwnShardKeyIndex(index: IndexSpecification, { indexes, shardKey }: ListedDefinition): boolean {
  if (!shardKey || !supportsShardKey(index, shardKey)) return false
  return !indexes.some((one) => supportsShardKey(one, shardKey))
}

function sameIndex(
  wanted: IndexSpecification,
  existing: IndexSpecification,
  options: RawFields,
  stage: DefinitionStage,
) {
  if (!differOnlyInDeferredOptions(wanted, existing)) return false
  const want = deferredOptionsOf(wanted)
  const have = deferredOptionsOf(existing)
  const ttl = fieldNamed(indexWhileDeferred(wanted, options), 'expireAfterSeconds')
  if (!sameNumber(ttl, have.expireAfterSeconds)) return false
  if (have.hidden && !want.hidden) return false
  const unique = want.unique || want.prepareUnique
  if (stage === 'prepared') return unique === (have.unique || have.prepareUnique)
  return !have.unique && !have.prepareUnique
}

/**
 * True if another index differs from this one only in its name and its deferred options. Until the commit, the
 * destination can have only one of the two.
 */
function conflictsWhileDeferred(index: IndexSpecification, all: IndexSpecification[]): boolean {
  return all.some((one) => indexName(one) !== indexName(index) && sameButForName(one, index))
}
