import {
  differOnlyInTraits,
  hasMaximum,
  heldBackIndex,
  heldBackOptions,
  type IndexSpecification,
  indexName,
  isCapped,
  sameButForName,
  sameNumber,
  sameOption,
  traitsOf,
} from '../domain/definition.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import { namespace } from '../domain/namespace.ts'
import { fieldNamed, type RawFields } from '../domain/raw-bson.ts'
import { type ShardKey, sameShardKey, supportsShardKey } from '../domain/shard-key.ts'

/** One namespace as it is listed: a collection with its indexes, or a view. */
export interface ListedDefinition {
  name: string
  type: string
  options: RawFields
  /** Secondary indexes; empty for views. */
  indexes: IndexSpecification[]
  /** How it is distributed, or is to be; null where it is not sharded. */
  shardKey: ShardKey | null
}

/**
 * When definitions are compared.
 *
 * heldBack   while events are applied: traits that wait for the commit are not there yet
 * prepared   at the verdict: sizes are back, unique indexes are `prepareUnique`, nothing expires yet
 */
export type DefinitionStage = 'heldBack' | 'prepared'

/** What of one database differs, definitions only. Indexes are only compared where they were to be built. */
export function compareDefinitions(
  database: string,
  source: ListedDefinition[],
  destination: ListedDefinition[],
  stage: DefinitionStage,
  buildsIndexes: boolean,
): Mismatch[] {
  const mismatches: Mismatch[] = []
  const standing = new Map(destination.map((one) => [one.name, one]))
  for (const wanted of source) {
    const one = standing.get(wanted.name)
    standing.delete(wanted.name)
    const name = namespace(database, wanted.name)
    if (!one || one.type !== wanted.type) {
      mismatches.push({ namespace: name, kind: 'collection' })
      continue
    }
    for (const field of differingOptions(wanted, one, stage))
      mismatches.push({ namespace: name, kind: 'option', field })
    if (!sameShardKey(wanted.shardKey, one.shardKey)) {
      mismatches.push({ namespace: name, kind: 'option', field: 'shardKey' })
    }
    for (const field of differingIndexes(wanted, one, stage, buildsIndexes)) {
      mismatches.push({ namespace: name, kind: 'index', field })
    }
  }
  for (const name of standing.keys()) {
    mismatches.push({ namespace: namespace(database, name), kind: 'collection', by: 'foreignWrite' })
  }
  return mismatches
}

/** Options that name the collection's past, not what it is. */
const meaningless = new Set(['uuid', 'temp', 'autoIndexId'])

function differingOptions(wanted: ListedDefinition, standing: ListedDefinition, stage: DefinitionStage): string[] {
  const expected =
    stage === 'heldBack' && wanted.type === 'collection' ? heldBackOptions(wanted.options) : wanted.options
  const names = new Set([...expected, ...standing.options].map(({ name }) => name))
  return [...names].filter((name) => {
    if (meaningless.has(name)) return false
    const one = fieldNamed(expected, name)
    const other = fieldNamed(standing.options, name)
    if (isCapped(wanted.options) && (name === 'size' || name === 'max')) {
      return !sameNumber(one, other) && !(name === 'max' && !hasMaximum(one) && !hasMaximum(other))
    }
    return !sameOption(name, one, other)
  })
}

function differingIndexes(
  wanted: ListedDefinition,
  standing: ListedDefinition,
  stage: DefinitionStage,
  buildsIndexes: boolean,
): string[] {
  const names: string[] = []
  const byName = new Map(standing.indexes.map((one) => [indexName(one), one]))
  for (const index of wanted.indexes) {
    const one = byName.get(indexName(index))
    byName.delete(indexName(index))
    if (!one) {
      // Before the commit's own last look one that is missing may yet be built, or refused by its own name.
      const awaited = stage === 'heldBack' || conflictsWithoutUnique(index, wanted.indexes)
      if (buildsIndexes && !awaited) names.push(indexName(index))
    } else if (!sameIndex(index, one, wanted.options, stage)) names.push(indexName(index))
  }
  const added = [...byName.values()].filter((one) => !standsInForSource(one, wanted))
  return [...names, ...added.map(indexName)]
}

/** Where no index of the source's supports the shard key, or none was to be built, the destination has one of its own. */
function standsInForSource(index: IndexSpecification, { indexes, shardKey }: ListedDefinition): boolean {
  if (!shardKey || !supportsShardKey(index, shardKey)) return false
  return !indexes.some((one) => supportsShardKey(one, shardKey))
}

function sameIndex(
  wanted: IndexSpecification,
  standing: IndexSpecification,
  options: RawFields,
  stage: DefinitionStage,
) {
  if (!differOnlyInTraits(wanted, standing)) return false
  const want = traitsOf(wanted)
  const have = traitsOf(standing)
  const ttl = fieldNamed(heldBackIndex(wanted, options), 'expireAfterSeconds')
  if (!sameNumber(ttl, have.expireAfterSeconds)) return false
  if (have.hidden && !want.hidden) return false
  const unique = want.unique || want.prepareUnique
  if (stage === 'prepared') return unique === (have.unique || have.prepareUnique)
  return !have.unique && !have.prepareUnique
}

/** Of two indexes that differ only in what is held back, one stands for both until the commit has ended. */
function conflictsWithoutUnique(index: IndexSpecification, all: IndexSpecification[]): boolean {
  return all.some((one) => indexName(one) !== indexName(index) && sameButForName(one, index))
}
