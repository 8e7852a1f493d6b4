import { bsonType, buildDocument, type TypedValue, typedDocument, typedInt32, typedString } from '../domain/raw-bson.ts'
import { isAddressable, type ShardKey, shardKeyValues } from '../domain/shard-key.ts'

/**
 * Builds the statements of update and delete commands as bytes. `idElement` is a document's whole `_id` element (type
 * byte, "_id\0", value), as found in the document or in an event's documentKey.
 */

const upsertTrue = Buffer.concat([Buffer.from([bsonType.boolean]), Buffer.from('upsert\0'), Buffer.from([1])])
const limitOne = Buffer.concat([Buffer.from([bsonType.int32]), Buffer.from('limit\0'), Buffer.from([1, 0, 0, 0])])
const limitNone = Buffer.concat([Buffer.from([bsonType.int32]), Buffer.from('limit\0'), Buffer.from([0, 0, 0, 0])])
const queryHead = Buffer.concat([Buffer.from([bsonType.document]), Buffer.from('q\0')])
const updateHead = Buffer.concat([Buffer.from([bsonType.document]), Buffer.from('u\0')])

/**
 * `{q: {_id}, u: document, upsert: true}`: a replacement, so the server interprets no field of the document as an
 * operator.
 */
export function upsertStatement(idElement: Buffer, document: Buffer): Buffer {
  const queryLength = 4 + idElement.length + 1
  const total = 4 + queryHead.length + queryLength + updateHead.length + document.length + upsertTrue.length + 1
  const statement = Buffer.allocUnsafe(total)
  let at = statement.writeInt32LE(total, 0)
  at += queryHead.copy(statement, at)
  at = statement.writeInt32LE(queryLength, at)
  at += idElement.copy(statement, at)
  statement[at++] = 0
  at += updateHead.copy(statement, at)
  at += document.copy(statement, at)
  at += upsertTrue.copy(statement, at)
  statement[at] = 0
  return statement
}

/** `{q: {_id}, limit: 1}`, or `limit: 0` (all) when an `_id` may exist on several shards. */
export function deleteStatement(idElement: Buffer, everywhere = false): Buffer {
  const limit = everywhere ? limitNone : limitOne
  const queryLength = 4 + idElement.length + 1
  const total = 4 + queryHead.length + queryLength + limit.length + 1
  const statement = Buffer.allocUnsafe(total)
  let at = statement.writeInt32LE(total, 0)
  at += queryHead.copy(statement, at)
  at = statement.writeInt32LE(queryLength, at)
  at += idElement.copy(statement, at)
  statement[at++] = 0
  at += limit.copy(statement, at)
  statement[at] = 0
  return statement
}

/**
 * Two statements that write a document into a collection with the shard key `key`. The first removes documents with the
 * same `_id` and other shard key values from all shards. The second is a replacement whose filter contains the whole
 * shard key, which mongos requires for an upsert
 * (https://www.mongodb.com/docs/v6.0/reference/method/db.collection.replaceOne/#upsert-on-a-sharded-collection).
 * Null when a filter cannot express the document's shard key values.
 */
export function keyedUpsert(
  idElement: Buffer,
  document: Buffer,
  key: ShardKey,
): { removeOthers: Buffer; upsert: Buffer } | null {
  const values = shardKeyValues(document, key)
  if (!values.every(isAddressable)) return null
  const conditions = conditionsOf(values, key)
  const id = { name: '_id', value: withoutName(idElement) }
  const others = { name: '$nor', value: typedArray([buildDocument(conditions)]) }
  const filter = (fields: { name: string; value: TypedValue }[]) => ({
    name: 'q',
    value: typedDocument(buildDocument(fields)),
  })
  return {
    removeOthers: buildDocument([filter([id, others]), { name: 'limit', value: typedInt32(0) }]),
    upsert: buildDocument([
      filter([id, ...conditions]),
      { name: 'u', value: typedDocument(document) },
      { name: 'upsert', value: Buffer.from([bsonType.boolean, 1]) },
    ]),
  }
}

/**
 * `{q: {_id, and the shard key}, limit: 1}`: removes the document with these shard key values. A router sends the
 * statement only to the shard that owns these values. Null when a filter cannot express the values.
 * @param values in the order of the fields of the key
 */
export function keyedDelete(idElement: Buffer, values: readonly TypedValue[], key: ShardKey): Buffer | null {
  if (!values.every(isAddressable)) return null
  const fields = [{ name: '_id', value: withoutName(idElement) }, ...conditionsOf(values, key)]
  return buildDocument([
    { name: 'q', value: typedDocument(buildDocument(fields)) },
    { name: 'limit', value: typedInt32(1) },
  ])
}

/**
 * `{q: {_id, and the shard key}, limit: 0}`: removes the document with exactly these shard key values, also if `keyedDelete`
 * cannot express them. Expressions compare such values (a pattern, `undefined`, a document with an operator's name) as they
 * are, but a router sends an expression to all shards.
 */
export function exactDelete(idElement: Buffer, values: readonly TypedValue[], key: ShardKey): Buffer {
  const statement = keyedDelete(idElement, values, key)
  if (statement) return statement
  const fields = key.map((field, at) => ({ field, value: values[at] as TypedValue }))
  const plain = fields.filter(({ value }) => isAddressable(value))
  const expressions = fields
    .filter(({ value }) => !isAddressable(value))
    .map(({ field: { path }, value }) => {
      const literal = typedDocument(buildDocument([{ name: '$literal', value }]))
      const equal = typedArrayOf([typedString(`$${path}`), literal])
      return typedDocument(buildDocument([{ name: '$eq', value: equal }]))
    })
  const filter = buildDocument([
    { name: '_id', value: withoutName(idElement) },
    ...conditionsOf(
      plain.map(({ value }) => value),
      plain.map(({ field }) => field),
    ),
    { name: '$expr', value: typedDocument(buildDocument([{ name: '$and', value: typedArrayOf(expressions) }])) },
  ])
  return buildDocument([
    { name: 'q', value: typedDocument(filter) },
    { name: 'limit', value: typedInt32(0) },
  ])
}

function conditionsOf(values: readonly TypedValue[], key: ShardKey): { name: string; value: TypedValue }[] {
  return key.flatMap(({ path }, at) =>
    path === '_id' ? [] : [{ name: path, value: typedDocument(buildDocument([equals(values[at] as TypedValue)])) }],
  )
}

function equals(value: TypedValue): { name: string; value: TypedValue } {
  return { name: '$eq', value }
}

function typedArray(documents: Buffer[]): TypedValue {
  return typedArrayOf(documents.map((document) => typedDocument(document)))
}

function typedArrayOf(values: readonly TypedValue[]): TypedValue {
  const elements = values.map((value, at) => ({ name: String(at), value }))
  return Buffer.concat([Buffer.from([bsonType.array]), buildDocument(elements)])
}

/** The type byte and the value, without "_id\0". */
function withoutName(idElement: Buffer): TypedValue {
  return Buffer.concat([idElement.subarray(0, 1), idElement.subarray(5)])
}
