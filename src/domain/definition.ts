import {
  bsonType,
  buildDocument,
  embedded,
  fieldNamed,
  isTruthy,
  numberOf,
  type RawFields,
  readFields,
  stringOf,
  type TypedValue,
  typedDocument,
  typedInt32,
} from './raw-bson.ts'

/**
 * The definition of a collection on the source (`CatalogEntry.wanted`). Until the commit, the destination has a less
 * strict version of it, because some options are deferred: unique indexes are built non-unique, TTL indexes have the
 * largest expiry that the server accepts (`neverExpires`), hidden indexes are visible, and capped collections have no
 * practical limit. tandem writes documents in another order than the source did, so a constraint could reject documents
 * that satisfy it on the source. Option values and index keys are copied byte by byte.
 */
export interface CollectionDefinition {
  options: RawFields
  /** Index specifications as listIndexes returns them, without the `_id` index and the clustered index. */
  indexes: IndexSpecification[]
}

export type IndexSpecification = RawFields

/**
 * The largest expireAfterSeconds that the server accepts: only documents whose date is more than 68 years ago expire.
 */
export const neverExpires = 2_147_483_647
/** 1 PB, the largest size that the server accepts for a capped collection. */
export const largestCappedBytes = 1_125_899_906_842_624n

/** Index options that tandem defers until the commit. `collMod` can set them on an existing index. */
const deferredIndexOptions = new Set(['unique', 'prepareUnique', 'hidden', 'expireAfterSeconds'])
/** Fields of a specification that carry no information: the server ignores or derives them. */
const ignoredFields = new Set(['ns', 'background'])

export function indexName(specification: IndexSpecification): string {
  return stringOf(fieldNamed(specification, 'name')) ?? ''
}

/**
 * Returns the indexes that tandem builds: all except the `_id` index and the clustered index, which the server creates.
 */
export function secondaryIndexes(all: IndexSpecification[]): IndexSpecification[] {
  return all.filter((one) => !isTruthy(fieldNamed(one, 'clustered')) && indexName(one) !== '_id_')
}

export function isClustered(options: RawFields): boolean {
  return fieldNamed(options, 'clusteredIndex') !== undefined
}

export function isCapped(options: RawFields): boolean {
  return isTruthy(fieldNamed(options, 'capped'))
}

/**
 * True if `max` limits the number of documents of a capped collection. It sets no limit if it is missing, 0 or
 * negative, or (after `collMod cappedMax`) the largest possible value.
 */
export function hasMaximum(max: TypedValue | undefined): boolean {
  const number = numberOf(max)
  return number !== undefined && number > 0 && number < largestMaximum
}

const largestMaximum = 2 ** 31 - 1

/** True if the collection's `_id` index uses a collation other than simple. */
export function isCollated(options: RawFields): boolean {
  const collation = fieldNamed(options, 'collation')
  return collation !== undefined && stringOf(fieldNamed(readFields(embedded(collation)), 'locale')) !== 'simple'
}

/**
 * Returns `expireAfterSeconds` of a clustered collection, which expires documents by their `_id`; undefined if it
 * expires none. All other collections expire documents by a TTL index.
 */
export function collectionExpiry(options: RawFields): TypedValue | undefined {
  return fieldNamed(options, 'clusteredIndex') && fieldNamed(options, 'expireAfterSeconds')
}

/** Returns the options with which tandem creates the collection on the destination before the commit. */
export function optionsWhileDeferred(options: RawFields): RawFields {
  const relaxed: RawFields = []
  for (const { name, value } of options) {
    if (ignoredOptions.has(name)) continue
    if (name === 'max' && isCapped(options)) continue
    if (name === 'expireAfterSeconds') continue
    relaxed.push({ name, value: name === 'size' && isCapped(options) ? typedInt64(largestCappedBytes) : value })
  }
  return relaxed
}

/**
 * Returns the specification with which tandem builds the index on the destination before the commit. In a collection
 * with a collation, it adds the simple collation to an index for which listIndexes shows no collation. Otherwise the
 * index would inherit the collation of the collection.
 */
export function indexWhileDeferred(specification: IndexSpecification, collection: RawFields): IndexSpecification {
  const relaxed: IndexSpecification = []
  if (isCollated(collection) && !fieldNamed(specification, 'collation')) {
    relaxed.push({ name: 'collation', value: simpleCollation })
  }
  for (const { name, value } of specification) {
    if (ignoredFields.has(name) || name === 'unique' || name === 'prepareUnique' || name === 'hidden') continue
    relaxed.push({ name, value: name === 'expireAfterSeconds' ? typedInt32(neverExpires) : value })
  }
  return relaxed
}

const simpleCollation: TypedValue = typedDocument(buildDocument([{ name: 'locale', value: typedString('simple') }]))

/** True if the two indexes are equal or differ only in the deferred options, which `collMod` sets at the commit. */
export function differOnlyInDeferredOptions(one: IndexSpecification, other: IndexSpecification): boolean {
  return Buffer.compare(immutablePart(one), immutablePart(other)) === 0
}

/**
 * True if `collMod` can turn the existing index into the wanted one. It can add an expiry to an index but cannot remove
 * it.
 */
export function canBecome(existing: IndexSpecification, wanted: IndexSpecification): boolean {
  if (deferredOptionsOf(existing).expireAfterSeconds && !deferredOptionsOf(wanted).expireAfterSeconds) return false
  return differOnlyInDeferredOptions(existing, wanted)
}

/**
 * True if the existing index has no expiry and the wanted one has. Until the commit an index without expiry suffices,
 * because nothing may expire. `collMod` can then add the expiry (5.1 and later,
 * https://www.mongodb.com/docs/manual/reference/command/collMod/#convert-a-non-ttl-index-to-a-ttl-index).
 */
export function lacksExpiry(existing: IndexSpecification, wanted: IndexSpecification): boolean {
  return (
    deferredOptionsOf(wanted).expireAfterSeconds !== undefined &&
    deferredOptionsOf(existing).expireAfterSeconds === undefined
  )
}

/** True if the server treats the two indexes as the same index while their deferred options are left out. */
export function sameButForName(one: IndexSpecification, other: IndexSpecification): boolean {
  const nameless = (index: IndexSpecification): RawFields => index.filter((field) => field.name !== 'name')
  return differOnlyInDeferredOptions(nameless(one), nameless(other))
}

function immutablePart(specification: IndexSpecification): Buffer {
  const fields = specification.filter(
    (field) => !deferredIndexOptions.has(field.name) && !ignoredFields.has(field.name),
  )
  return buildDocument(sorted(fields))
}

function sorted(fields: RawFields): RawFields {
  return [...fields].sort((one, other) => (one.name < other.name ? -1 : 1))
}

export interface DeferredIndexOptions {
  unique: boolean
  prepareUnique: boolean
  hidden: boolean
  expireAfterSeconds: TypedValue | undefined
}

export function deferredOptionsOf(specification: IndexSpecification): DeferredIndexOptions {
  return {
    unique: isTruthy(fieldNamed(specification, 'unique')),
    prepareUnique: isTruthy(fieldNamed(specification, 'prepareUnique')),
    hidden: isTruthy(fieldNamed(specification, 'hidden')),
    expireAfterSeconds: fieldNamed(specification, 'expireAfterSeconds'),
  }
}

/** Compares the values as numbers. The server may store a number as another BSON type. */
export function sameNumber(one: TypedValue | undefined, other: TypedValue | undefined): boolean {
  return numberOf(one) === numberOf(other)
}

/**
 * Options that tandem changes on the destination by `collMod` as soon as the source changes them, with their defaults.
 * The size of a capped collection is changed only at the commit.
 */
const changeableOptions: Record<string, TypedValue> = {
  validator: typedDocument(buildDocument([])),
  validationLevel: typedString('strict'),
  validationAction: typedString('error'),
  changeStreamPreAndPostImages: typedDocument(
    buildDocument([{ name: 'enabled', value: Buffer.from([bsonType.boolean, 0]) }]),
  ),
}

/** Returns the `collMod` fields that change the options `from` to `to`; empty if collMod can change no difference. */
export function collModOptions(from: RawFields, to: RawFields): RawFields {
  const changes: RawFields = []
  for (const [name, unset] of Object.entries(changeableOptions)) {
    const before = fieldNamed(from, name) ?? unset
    const after = fieldNamed(to, name) ?? unset
    if (Buffer.compare(before, after) !== 0) changes.push({ name, value: after })
  }
  return changes
}

/**
 * Options that do not affect the behavior of a collection. They record its history or belong to the replica set that
 * holds it. A server of 8.1 or later sets `recordIdsReplicated` on new collections if a feature flag is on, and other
 * servers refuse to create a collection with this option (`create.idl` in the server's source).
 */
export const ignoredOptions: ReadonlySet<string> = new Set(['uuid', 'temp', 'autoIndexId', 'recordIdsReplicated'])

/** True if `collMod` alone turns a collection with the options `existing` into one with the options `wanted`. */
export function changesByCollMod(existing: RawFields, wanted: RawFields): boolean {
  const names = new Set([...existing, ...wanted].map(({ name }) => name))
  return [...names].every((name) => {
    if (ignoredOptions.has(name) || Object.hasOwn(changeableOptions, name)) return true
    return Buffer.compare(fieldNamed(existing, name) ?? nothing, fieldNamed(wanted, name) ?? nothing) === 0
  })
}

/**
 * True if an option has the same meaning in both definitions: a default that `collMod` has set explicitly equals a
 * missing option.
 */
export function sameOption(name: string, one: TypedValue | undefined, other: TypedValue | undefined): boolean {
  const unset = changeableOptions[name] ?? nothing
  return Buffer.compare(one ?? unset, other ?? unset) === 0
}

const nothing: TypedValue = Buffer.alloc(0)

function typedInt64(value: bigint): TypedValue {
  const typed = Buffer.alloc(9)
  typed[0] = bsonType.int64
  typed.writeBigInt64LE(value, 1)
  return typed
}

function typedString(value: string): TypedValue {
  const text = Buffer.from(`${value}\0`, 'utf8')
  const typed = Buffer.alloc(5)
  typed[0] = bsonType.string
  typed.writeInt32LE(text.length, 1)
  return Buffer.concat([typed, text])
}

/**
 * True if both lists have the same indexes in the same order. The order of a specification's fields does not matter,
 * because `$listCatalog` and listIndexes return them in different orders.
 */
export function sameIndexes(one: IndexSpecification[], other: IndexSpecification[]): boolean {
  return one.length === other.length && one.every((index, at) => sameFields(index, other[at] ?? []))
}

function sameFields(one: RawFields, other: RawFields): boolean {
  if (one.length !== other.length) return false
  return one.every(({ name, value }) => fieldNamed(other, name)?.equals(value) ?? false)
}
