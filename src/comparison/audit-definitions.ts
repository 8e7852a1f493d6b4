import { BSON } from 'mongodb'
import {
  bsonType,
  embedded,
  fieldNamed,
  numberOf,
  type RawFields,
  readFields,
  stringOf,
  type TypedValue,
} from '../domain/raw-bson.ts'
import type { Difference } from './difference.ts'

/** A collection or view as listCollections returns it. */
export interface Listed {
  name: string
  /** `collection`, `view` or `timeseries`. */
  type: string
  options: RawFields
}

/** The default values of options. The server stores some of them explicitly after a collMod. */
const unsetOptions = readFields(
  Buffer.from(
    BSON.serialize({
      validator: {},
      validationLevel: 'strict',
      validationAction: 'error',
      changeStreamPreAndPostImages: { enabled: false },
    }),
  ),
)
/**
 * A comparison ignores these options. The UUID differs between any two collections, and each server decides itself
 * whether it replicates record ids (8.1 and later).
 */
const ignoredOptions = new Set(['uuid', 'recordIdsReplicated'])
/** The server may store these in a wider type than the one that it received. */
const numericOptions = new Set(['size', 'max', 'expireAfterSeconds'])
/** The index format version, the namespace, and an obsolete build option. */
const ignoredIndexFields = new Set(['v', 'ns', 'background'])

export function readListed(document: Buffer): Listed {
  const fields = readFields(document)
  const options = fieldNamed(fields, 'options')
  return {
    name: stringOf(fieldNamed(fields, 'name')) ?? '',
    type: stringOf(fieldNamed(fields, 'type')) ?? 'collection',
    options: options === undefined ? [] : readFields(embedded(options)),
  }
}

/** Returns the collation of a collection, or undefined if it is the simple one. */
export function collationOf({ options }: Listed): TypedValue | undefined {
  const collation = fieldNamed(options, 'collation')
  return collation && stringOf(fieldNamed(readFields(embedded(collation)), 'locale')) !== 'simple'
    ? collation
    : undefined
}

export function sameCollation(ours: Listed, theirs: Listed): boolean {
  return sameValue(collationOf(ours), collationOf(theirs), false)
}

export function isCapped({ options }: Listed): boolean {
  const capped = fieldNamed(options, 'capped')
  return capped?.[0] === bsonType.boolean && capped[1] === 1
}

/**
 * Lists the options that differ. The order of the options is ignored. Values are compared byte for byte, except
 * `numericOptions`, which are compared as numbers. An option that is not set counts as its default value.
 */
export function compareOptions(namespace: string, ours: Listed, theirs: Listed): Difference[] {
  const names = differingFields(ours.options, theirs.options, (name, a, b) => {
    const unset = fieldNamed(unsetOptions, name)
    return sameValue(a ?? unset, b ?? unset, numericOptions.has(name))
  })
  return names
    .filter((name) => !ignoredOptions.has(name))
    .map((option) => ({ namespace, what: 'option', how: 'different', option }))
}

/**
 * Which indexes are compared.
 *
 * all        every index
 * unhashed   all but those with a hashed field
 * id         only the index of `_id`
 */
export type ComparedIndexes = 'all' | 'unhashed' | 'id'

export function compareIndexes(
  namespace: string,
  ours: Buffer[],
  theirs: Buffer[],
  compared: ComparedIndexes,
): Difference[] {
  const [left, right] = [byName(ours, compared), byName(theirs, compared)]
  const differences: Difference[] = []
  for (const index of [...new Set([...left.keys(), ...right.keys()])].sort()) {
    const [a, b] = [left.get(index), right.get(index)]
    if (!a) differences.push({ namespace, what: 'index', how: 'extra', index })
    else if (!b) differences.push({ namespace, what: 'index', how: 'missing', index })
    else {
      const fields = differingFields(a, b, (name, one, other) =>
        name === 'key' ? sameKey(one, other) : sameValue(one, other, true),
      )
      for (const field of fields.filter((name) => !ignoredIndexFields.has(name))) {
        differences.push({ namespace, what: 'index', how: 'different', index, field })
      }
    }
  }
  return differences
}

function byName(indexes: Buffer[], compared: ComparedIndexes): Map<string, RawFields> {
  const named = indexes.map((index): [string, RawFields] => {
    const fields = readFields(index)
    return [stringOf(fieldNamed(fields, 'name')) ?? '', fields]
  })
  if (compared === 'all') return new Map(named)
  return new Map(named.filter(([, fields]) => (compared === 'id' ? isOnId(fields) : !isHashed(fields))))
}

function isHashed(fields: RawFields): boolean {
  const key = fieldNamed(fields, 'key')
  return key !== undefined && readFields(embedded(key)).some(({ value }) => stringOf(value) === 'hashed')
}

/** True for the `_id` index, which may have another name in a clustered collection. */
function isOnId(fields: RawFields): boolean {
  const key = fieldNamed(fields, 'key')
  const names = key === undefined ? [] : readFields(embedded(key)).map(({ name }) => name)
  return names.length === 1 && names[0] === '_id'
}

function differingFields(
  ours: RawFields,
  theirs: RawFields,
  same: (name: string, a: TypedValue | undefined, b: TypedValue | undefined) => boolean,
): string[] {
  const names = new Set([...ours, ...theirs].map(({ name }) => name))
  return [...names].sort().filter((name) => !same(name, fieldNamed(ours, name), fieldNamed(theirs, name)))
}

function sameValue(a: TypedValue | undefined, b: TypedValue | undefined, byNumber: boolean): boolean {
  if (a === undefined || b === undefined) return a === b
  if (a.equals(b)) return true
  const [one, other] = [numberOf(a), numberOf(b)]
  return byNumber && one !== undefined && one === other
}

/**
 * True if both keys have the same fields in the same order. Directions are compared by value, because 1 and 1.0 are the
 * same direction.
 */
function sameKey(a: TypedValue | undefined, b: TypedValue | undefined): boolean {
  if (a === undefined || b === undefined) return a === b
  const [ours, theirs] = [readFields(embedded(a)), readFields(embedded(b))]
  return (
    ours.length === theirs.length &&
    ours.every(({ name, value }, at) => name === theirs[at]?.name && sameValue(value, theirs[at]?.value, true))
  )
}
