import { isCollated } from './definition.ts'
import {
  bsonType,
  embedded,
  fieldNamed,
  findSpan,
  isTruthy,
  numberOf,
  type RawFields,
  readFields,
  spans,
  stringOf,
  type TypedValue,
  typedValue,
} from './raw-bson.ts'

/** The fields of a shard key, in order. Each is either ascending or `hashed`; the server supports no other kind. */
export type ShardKey = readonly ShardKeyField[]

export interface ShardKeyField {
  /** A field name, or a dotted path. */
  path: string
  hashed: boolean
}

/** Converts a shard key from the form in which config.collections and index specifications have it. */
export function toShardKey(pattern: RawFields): ShardKey {
  return pattern.map(({ name, value }) => ({ path: name, hashed: stringOf(value) === 'hashed' }))
}

/** Converts the shard key of a start request. */
export function requestedShardKey(fields: readonly Record<string, number | 'hashed'>[]): ShardKey {
  return fields.flatMap((field) =>
    Object.entries(field).map(([path, direction]) => ({ path, hashed: direction === 'hashed' })),
  )
}

/**
 * The shard key as commands accept it. It is a Map because an object does not keep the order of names that look like
 * numbers.
 */
export function patternOf(key: ShardKey): Map<string, 1 | 'hashed'> {
  return new Map(key.map(({ path, hashed }) => [path, hashed ? 'hashed' : 1]))
}

export function sameShardKey(one: ShardKey | null, other: ShardKey | null): boolean {
  return one === other || (one !== null && other !== null && one.length === other.length && isPrefix(one, other))
}

/** True if `key` begins with all fields of `prefix`, as after refineCollectionShardKey. */
export function isPrefix(prefix: ShardKey, key: ShardKey): boolean {
  return prefix.every(({ path, hashed }, at) => key[at]?.path === path && key[at]?.hashed === hashed)
}

/**
 * True if a collection with the shard key `existing` can get the shard key `wanted` without a copy of its documents:
 * both are equal, or refineCollectionShardKey can add the missing fields. Null stands for an unsharded collection.
 */
export function canBecomeKey(existing: ShardKey | null, wanted: ShardKey | null): boolean {
  if (existing === null || wanted === null) return existing === wanted
  return isPrefix(existing, wanted)
}

/** Formats the key for messages: `{"region": 1, "user": "hashed"}`. */
export function showShardKey(key: ShardKey): string {
  return `{${key.map(({ path, hashed }) => `${JSON.stringify(path)}: ${hashed ? '"hashed"' : 1}`).join(', ')}}`
}

/**
 * True if two shards of the destination may have documents with the same `_id`. Each shard enforces uniqueness only for
 * its own documents. If the shard key is `_id` alone, equal `_id`s are on one shard, unless the collection has a
 * collation. Then the key is a hash of `_id` under the simple collation, and `_id`s that are equal under the collection's
 * collation may have different hashes.
 */
export function isKeyed({ shardKey, wanted }: { shardKey: ShardKey | null; wanted?: { options: RawFields } }): boolean {
  if (shardKey === null) return false
  return shardKey.length > 1 || shardKey[0]?.path !== '_id' || (wanted !== undefined && isCollated(wanted.options))
}

/**
 * True if two shards of the source may have documents with the same `_id`. The entry contains the shard key on the
 * destination, which is usually that of the source. If the destination is a replica set, no entry has a shard key, so the
 * result is the same for all collections.
 */
export function mayRepeatIds(
  source: { idsMayRepeat: boolean },
  destination: { sharded: boolean },
  entry: Parameters<typeof isKeyed>[0],
): boolean {
  return source.idsMayRepeat && (isKeyed(entry) || !destination.sharded)
}

/** The server treats a missing field of a shard key as null. */
export const nullValue: TypedValue = Buffer.from([bsonType.null])

/** Returns the values of the key's fields in the document. A missing field is null. */
export function shardKeyValues(document: Buffer, key: ShardKey): TypedValue[] {
  return key.map(({ path }) => valueAt(document, path.split('.')) ?? nullValue)
}

function valueAt(document: Buffer, path: string[]): TypedValue | null {
  let offset = 0
  for (const [at, name] of path.entries()) {
    // findSpan compares names as Latin-1 text of their UTF-8 bytes.
    const span = findSpan(document, Buffer.from(name, 'utf8').latin1Slice(), offset)
    if (!span) return null
    if (at === path.length - 1) return typedValue(document, span)
    if (span.type !== bsonType.document) return null
    offset = span.valueStart
  }
  return null
}

/**
 * True if a query `{field: value}` can find a document with exactly this value. In a query, no value equals
 * `undefined`, an array also matches a field that contains it as an element, a regular expression is a pattern, and a
 * name that begins with a dollar sign is an operator.
 */
export function isAddressable(value: TypedValue): boolean {
  switch (value[0]) {
    case bsonType.undefined:
    case bsonType.regex:
    case bsonType.array:
      return false
    case bsonType.document: {
      const document = embedded(value)
      for (const { nameStart } of spans(document)) if (document[nameStart] === dollarSign) return false
      return true
    }
    default:
      return true
  }
}

const dollarSign = 0x24

/**
 * True if the server accepts this index for the shard key `key`: it begins with the key's fields, contains every
 * document, and has the simple collation. A multikey index is not accepted either, but only a query plan shows that.
 */
export function supportsShardKey(specification: RawFields, key: ShardKey): boolean {
  const pattern = fieldNamed(specification, 'key')
  if (!pattern) return false
  const fields = readFields(embedded(pattern))
  if (fieldNamed(specification, 'partialFilterExpression') || isTruthy(fieldNamed(specification, 'sparse')))
    return false
  // listIndexes omits the simple collation, also in a collection that has another one.
  if (fieldNamed(specification, 'collation')) return false
  return key.every(({ path, hashed }, at) => {
    const one = fields[at]
    return one?.name === path && (hashed ? stringOf(one.value) === 'hashed' : numberOf(one.value) === 1)
  })
}
