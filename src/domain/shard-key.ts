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

/** The fields of a shard key, in order. The server knows no other direction than ascending, and `hashed`. */
export type ShardKey = readonly ShardKeyField[]

export interface ShardKeyField {
  /** May be dotted. */
  path: string
  hashed: boolean
}

/** What the server stores of a key, in config.collections and in an index specification alike. */
export function toShardKey(pattern: RawFields): ShardKey {
  return pattern.map(({ name, value }) => ({ path: name, hashed: stringOf(value) === 'hashed' }))
}

/** As the request of a start has it. */
export function askedShardKey(fields: readonly Record<string, number | 'hashed'>[]): ShardKey {
  return fields.flatMap((field) =>
    Object.entries(field).map(([path, direction]) => ({ path, hashed: direction === 'hashed' })),
  )
}

/** As commands take it; an object keeps its order only for names that do not look like numbers, hence the map. */
export function patternOf(key: ShardKey): Map<string, 1 | 'hashed'> {
  return new Map(key.map(({ path, hashed }) => [path, hashed ? 'hashed' : 1]))
}

export function sameShardKey(one: ShardKey | null, other: ShardKey | null): boolean {
  return one === other || (one !== null && other !== null && one.length === other.length && isPrefix(one, other))
}

/** True when `key` begins with all of `prefix`: so refineCollectionShardKey makes one of the other. */
export function isPrefix(prefix: ShardKey, key: ShardKey): boolean {
  return prefix.every(({ path, hashed }, at) => key[at]?.path === path && key[at]?.hashed === hashed)
}

/** For messages: `{"region": 1, "user": "hashed"}`. */
export function showShardKey(key: ShardKey): string {
  return `{${key.map(({ path, hashed }) => `${JSON.stringify(path)}: ${hashed ? '"hashed"' : 1}`).join(', ')}}`
}

/**
 * True for a collection that the destination distributes by more, or other, than `_id`. Only there may one `_id` stand
 * on two shards at a time, since each shard sees to the uniqueness of its own documents alone.
 */
export function isKeyed({ shardKey }: { shardKey: ShardKey | null }): boolean {
  return shardKey !== null && !(shardKey.length === 1 && shardKey[0]?.path === '_id')
}

const nullValue: TypedValue = Buffer.from([bsonType.null])

/** The document's values of the key's fields. A field that is missing counts as null, as it does for the server. */
export function shardKeyValues(document: Buffer, key: ShardKey): TypedValue[] {
  return key.map(({ path }) => valueAt(document, path.split('.')) ?? nullValue)
}

function valueAt(document: Buffer, path: string[]): TypedValue | null {
  let offset = 0
  for (const [at, name] of path.entries()) {
    // By bytes of UTF-8: findSpan compares lengths of Latin-1 text.
    const span = findSpan(document, Buffer.from(name, 'utf8').latin1Slice(), offset)
    if (!span) return null
    if (at === path.length - 1) return typedValue(document, span)
    if (span.type !== bsonType.document) return null
    offset = span.valueStart
  }
  return null
}

/**
 * True when a filter can say that a field has exactly this value. Nothing equals `undefined` in a query, a regular
 * expression is taken for a pattern, and a name that begins with a dollar sign for an operator.
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
 * True when the server accepts this index for distributing documents by `key`: the key's fields come first, every document is in
 * it, and text compares by its bytes. Whether the index is multikey, which rules it out too, only its statistics tell.
 */
export function supportsShardKey(specification: RawFields, key: ShardKey): boolean {
  const pattern = fieldNamed(specification, 'key')
  if (!pattern) return false
  const fields = readFields(embedded(pattern))
  if (fieldNamed(specification, 'partialFilterExpression') || isTruthy(fieldNamed(specification, 'sparse')))
    return false
  // listIndexes leaves the simple one out, also in a collection that has one of its own.
  if (fieldNamed(specification, 'collation')) return false
  return key.every(({ path, hashed }, at) => {
    const one = fields[at]
    return one?.name === path && (hashed ? stringOf(one.value) === 'hashed' : numberOf(one.value) === 1)
  })
}
