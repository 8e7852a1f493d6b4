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
 * What a collection looks like on the source (`wanted`) and what of it stands on the destination until commit
 * (`held back`). Unique indexes are built non-unique, TTL indexes expire nothing, hidden indexes are visible, capped
 * collections are widened: applying documents in any order must not meet a constraint that the source enforces on an
 * order of its own. Everything is raw: option values and index keys keep their bytes.
 */
export interface CollectionDefinition {
  options: RawFields
  /** Index specifications as listIndexes gives them, `_id` index and clustered index left out. */
  indexes: IndexSpecification[]
}

export type IndexSpecification = RawFields

/** The largest expireAfterSeconds the server takes: nothing expires for 68 years. */
export const neverExpires = 2_147_483_647
/** 1 PB, the largest size the server takes for a capped collection. */
export const widestCappedBytes = 1_125_899_906_842_624n

/** Index traits that `collMod` can set later, so they are held back until commit. */
const indexTraits = new Set(['unique', 'prepareUnique', 'hidden', 'expireAfterSeconds'])
/** Fields of a specification that say nothing: the server ignores or derives them. */
const meaningless = new Set(['ns', 'background'])

export function indexName(specification: IndexSpecification): string {
  return stringOf(fieldNamed(specification, 'name')) ?? ''
}

/** Of all indexes of a collection those that are copied: every collection has an `_id` index, or is clustered, of its own. */
export function secondaryIndexes(all: IndexSpecification[]): IndexSpecification[] {
  return all.filter((one) => !isTruthy(fieldNamed(one, 'clustered')) && indexName(one) !== '_id_')
}

export function isCapped(options: RawFields): boolean {
  return isTruthy(fieldNamed(options, 'capped'))
}

/** A capped collection without a maximum of documents leaves it out, or has 0 or less or, by `collMod cappedMax`, the largest there is. */
export function hasMaximum(max: TypedValue | undefined): boolean {
  const number = numberOf(max)
  return number !== undefined && number > 0 && number < largestMaximum
}

const largestMaximum = 2 ** 31 - 1

/** True when the collection's `_id` index compares by a collation other than simple. */
export function isCollated(options: RawFields): boolean {
  const collation = fieldNamed(options, 'collation')
  return collation !== undefined && stringOf(fieldNamed(readFields(embedded(collation)), 'locale')) !== 'simple'
}

/** The `create` command's fields for a collection on the destination. */
export function heldBackOptions(options: RawFields): RawFields {
  const held: RawFields = []
  for (const { name, value } of options) {
    if (name === 'uuid' || name === 'temp' || name === 'autoIndexId') continue
    if (name === 'max' && isCapped(options)) continue
    if (name === 'expireAfterSeconds') continue
    held.push({ name, value: name === 'size' && isCapped(options) ? typedInt64(widestCappedBytes) : value })
  }
  return held
}

/**
 * The index specification to build on the destination before commit. In a collated collection an index without collation
 * would inherit the collection's: listIndexes leaves the simple one out.
 */
export function heldBackIndex(specification: IndexSpecification, collection: RawFields): IndexSpecification {
  const held: IndexSpecification = []
  if (isCollated(collection) && !fieldNamed(specification, 'collation')) {
    held.push({ name: 'collation', value: simpleCollation })
  }
  for (const { name, value } of specification) {
    if (meaningless.has(name) || name === 'unique' || name === 'prepareUnique' || name === 'hidden') continue
    held.push({ name, value: name === 'expireAfterSeconds' ? typedInt32(neverExpires) : value })
  }
  return held
}

const simpleCollation: TypedValue = typedDocument(buildDocument([{ name: 'locale', value: typedString('simple') }]))

/** True when one index can become the other by `collMod` alone, that is at commit. */
export function differOnlyInTraits(one: IndexSpecification, other: IndexSpecification): boolean {
  return Buffer.compare(immutablePart(one), immutablePart(other)) === 0
}

/** True when the index that stands can become the wanted one: `collMod` gives an index an expiry, but takes none away. */
export function canBecome(standing: IndexSpecification, wanted: IndexSpecification): boolean {
  if (traitsOf(standing).expireAfterSeconds && !traitsOf(wanted).expireAfterSeconds) return false
  return differOnlyInTraits(standing, wanted)
}

/**
 * True when the existing index has no expiry and the wanted one has: `collMod` gives a plain index an expiry (5.1 and later,
 * https://www.mongodb.com/docs/manual/reference/command/collMod/#convert-a-non-ttl-index-to-a-ttl-index), and until the commit
 * that is the one by which nothing expires.
 */
export function lacksExpiry(existing: IndexSpecification, wanted: IndexSpecification): boolean {
  return traitsOf(wanted).expireAfterSeconds !== undefined && traitsOf(existing).expireAfterSeconds === undefined
}

/** True for indexes that, with their traits held back, are one and the same to the server. */
export function sameButForName(one: IndexSpecification, other: IndexSpecification): boolean {
  const nameless = (index: IndexSpecification): RawFields => index.filter((field) => field.name !== 'name')
  return differOnlyInTraits(nameless(one), nameless(other))
}

function immutablePart(specification: IndexSpecification): Buffer {
  const fields = specification.filter((field) => !indexTraits.has(field.name) && !meaningless.has(field.name))
  return buildDocument(sorted(fields))
}

function sorted(fields: RawFields): RawFields {
  return [...fields].sort((one, other) => (one.name < other.name ? -1 : 1))
}

export interface IndexTraits {
  unique: boolean
  prepareUnique: boolean
  hidden: boolean
  expireAfterSeconds: TypedValue | undefined
}

export function traitsOf(specification: IndexSpecification): IndexTraits {
  return {
    unique: isTruthy(fieldNamed(specification, 'unique')),
    prepareUnique: isTruthy(fieldNamed(specification, 'prepareUnique')),
    hidden: isTruthy(fieldNamed(specification, 'hidden')),
    expireAfterSeconds: fieldNamed(specification, 'expireAfterSeconds'),
  }
}

/** Equal as numbers, whatever their BSON type: the server may widen what it is given. */
export function sameNumber(one: TypedValue | undefined, other: TypedValue | undefined): boolean {
  return numberOf(one) === numberOf(other)
}

/** Options that a `collMod` on the destination can follow at once; capped sizes wait for commit. */
const followed: Record<string, TypedValue> = {
  validator: typedDocument(buildDocument([])),
  validationLevel: typedString('strict'),
  validationAction: typedString('error'),
  changeStreamPreAndPostImages: typedDocument(
    buildDocument([{ name: 'enabled', value: Buffer.from([bsonType.boolean, 0]) }]),
  ),
}

/** The `collMod` fields that turn options `from` into options `to`; empty when nothing that collMod can follow differs. */
export function collModOptions(from: RawFields, to: RawFields): RawFields {
  const changes: RawFields = []
  for (const [name, unset] of Object.entries(followed)) {
    const before = fieldNamed(from, name) ?? unset
    const after = fieldNamed(to, name) ?? unset
    if (Buffer.compare(before, after) !== 0) changes.push({ name, value: after })
  }
  return changes
}

/** True when an option says the same on both; what `collMod` makes explicit equals what is left out. */
export function sameOption(name: string, one: TypedValue | undefined, other: TypedValue | undefined): boolean {
  const unset = followed[name] ?? nothing
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
