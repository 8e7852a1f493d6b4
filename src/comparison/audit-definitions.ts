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

/** Compares the definitions of two clusters for `audit`. Values named `left` are from cluster0, `right` from cluster1. */

/** A collection or view as listCollections returns it. */
export interface Listed {
  name: string
  /** `collection`, `view` or `timeseries`. */
  type: string
  options: RawFields
}

/** The default values of options. After a collMod, the server stores some of them explicitly. */
const defaultOptions = readFields(
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
 * Options that the comparison ignores. Every collection has its own UUID, and each server decides by itself whether it
 * replicates record ids (8.1 and later).
 */
const ignoredOptions = new Set(['uuid', 'recordIdsReplicated'])
/** Options that the server may store in a wider numeric type than the one that it received. */
const numericOptions = new Set(['size', 'max', 'expireAfterSeconds'])
/** Fields of an index that the comparison ignores: the format version, the namespace, and an obsolete build option. */
const ignoredIndexFields = new Set(['v', 'ns', 'background'])

/** Parses a document of a listCollections reply. */
export function readListed(document: Buffer): Listed {
  const fields = readFields(document)
  const options = fieldNamed(fields, 'options')
  return {
    name: stringOf(fieldNamed(fields, 'name')) ?? '',
    type: stringOf(fieldNamed(fields, 'type')) ?? 'collection',
    options: options === undefined ? [] : readFields(embedded(options)),
  }
}

/** Returns the default collation of a collection as an embedded document, or undefined if it is the simple collation. */
export function collationOf({ options }: Listed): TypedValue | undefined {
  const collation = fieldNamed(options, 'collation')
  return collation && stringOf(fieldNamed(readFields(embedded(collation)), 'locale')) !== 'simple'
    ? collation
    : undefined
}

export function sameCollation(left: Listed, right: Listed): boolean {
  return sameValue(collationOf(left), collationOf(right), false)
}

export function isCapped({ options }: Listed): boolean {
  const capped = fieldNamed(options, 'capped')
  return capped?.[0] === bsonType.boolean && capped[1] === 1
}

/**
 * Returns the options that differ. Ignores the order of the options. Compares values byte for byte, except
 * `numericOptions`, whose numbers are compared. A missing option counts as its default value.
 */
export function compareOptions(namespace: string, left: Listed, right: Listed): Difference[] {
  const names = differingFields(left.options, right.options, (name, a, b) => {
    const byDefault = fieldNamed(defaultOptions, name)
    return sameValue(a ?? byDefault, b ?? byDefault, numericOptions.has(name))
  })
  return names
    .filter((name) => !ignoredOptions.has(name))
    .map((option) => ({ namespace, what: 'option', how: 'different', option }))
}

/**
 * The indexes that are compared.
 *
 * all        Every index.
 * unhashed   Every index without a hashed field.
 * id         Only the `_id` index.
 */
export type ComparedIndexes = 'all' | 'unhashed' | 'id'

/**
 * Returns the differences between the indexes of a collection. Two indexes correspond if they have the same name.
 * Numbers are compared by value, and all other fields byte for byte.
 * @param left the specifications of cluster0 as listIndexes returns them
 * @param right those of cluster1
 */
export function compareIndexes(
  namespace: string,
  left: Buffer[],
  right: Buffer[],
  compared: ComparedIndexes,
): Difference[] {
  const [leftIndexes, rightIndexes] = [byName(left, compared), byName(right, compared)]
  const differences: Difference[] = []
  for (const index of [...new Set([...leftIndexes.keys(), ...rightIndexes.keys()])].sort()) {
    const [a, b] = [leftIndexes.get(index), rightIndexes.get(index)]
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

/**
 * True for the `_id` index, which the server recognizes by its only field and a numeric direction. The name does not
 * identify it, because it may have another one in a clustered collection.
 */
function isOnId(fields: RawFields): boolean {
  const key = fieldNamed(fields, 'key')
  const [first, second] = key === undefined ? [] : readFields(embedded(key))
  return first?.name === '_id' && second === undefined && numberOf(first.value) !== undefined
}

/** Returns the names of the fields for which `same` is false, in alphabetical order. */
function differingFields(
  left: RawFields,
  right: RawFields,
  same: (name: string, a: TypedValue | undefined, b: TypedValue | undefined) => boolean,
): string[] {
  const names = new Set([...left, ...right].map(({ name }) => name))
  return [...names].sort().filter((name) => !same(name, fieldNamed(left, name), fieldNamed(right, name)))
}

/** @param byNumber true if numbers of different types are equal when their values are equal */
function sameValue(a: TypedValue | undefined, b: TypedValue | undefined, byNumber: boolean): boolean {
  if (a === undefined || b === undefined) return a === b
  if (a.equals(b)) return true
  const [one, other] = [numberOf(a), numberOf(b)]
  return byNumber && one !== undefined && one === other
}

/**
 * True if both keys have the same fields in the same order, each with the same direction or index type. Directions are
 * compared by value, because 1 and 1.0 are the same direction.
 */
function sameKey(a: TypedValue | undefined, b: TypedValue | undefined): boolean {
  if (a === undefined || b === undefined) return a === b
  const [left, right] = [readFields(embedded(a)), readFields(embedded(b))]
  return (
    left.length === right.length &&
    left.every(({ name, value }, at) => name === right[at]?.name && sameValue(value, right[at]?.value, true))
  )
}
