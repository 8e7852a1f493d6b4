import { randomBytes } from 'node:crypto'
import {
  bsonType,
  buildDocument,
  embedded,
  type RawFields,
  readFields,
  type TypedValue,
  typedBoolean,
  typedDocument,
} from '../domain/raw-bson.ts'

/**
 * The server rejects a BSON object of more than 16 MB + 16 KB (BSONObjectTooLarge), including the oplog entry of a
 * write. The entries of inserts, replacements and updates contain the `_id` beside the document or the changed fields
 * (measured on 6.0.27). Hence a document of nearly 16 MB with an `_id` of more than about 16 KB cannot be written by
 * one statement. Such a document exists on a source if it was inserted small and updates enlarged it. tandem writes it
 * in the same way: it inserts the first fields and adds the others by updates.
 */
const objectBytesMax = 16 * 1024 * 1024 + 16 * 1024
/** Bytes reserved for the other fields of an oplog entry and for the names in a statement. */
const reserveBytes = 4 * 1024

/** Maximum bytes of the array items that one update appends. The oplog entry is larger, because it names each item. */
const itemBytesMax = 4 * 1024 * 1024

interface DocumentParts {
  /** The document without its last fields, and with a marker field. */
  insert: Buffer
  /** Update statements that add the rest. The last one removes the marker. Each must match exactly one document. */
  updates: Buffer[]
}

/**
 * Divides a document into statements that the server accepts. All statements contain a random marker, so the parts of
 * two writers are never mixed in one document: a statement of the other writer matches nothing. A document that a
 * failed attempt left incomplete keeps its marker, and the next attempt replaces it.
 * @param ofInsert top-level fields that the insert must contain, because the shard key is made of them
 * @returns null if the document cannot be divided without changing its bytes
 */
export function documentParts(
  idElement: Buffer,
  document: Buffer,
  ofInsert: ReadonlySet<string> = new Set(),
): DocumentParts | null {
  const capacity = objectBytesMax - reserveBytes - idElement.length
  const marker = { name: `tandem_${randomBytes(12).toString('hex')}`, value: typedBoolean(true) }
  const [id, ...fields] = readFields(document)
  if (id?.name !== '_id') return null
  const insertCapacity = capacity - idElement.length
  const taken = takePrefix(fields, insertCapacity)
  const rest = fields.slice(taken)
  const updates: RawFields[] = []
  if (insertCapacity < 0 || rest.some(({ name }) => ofInsert.has(name))) return null
  if (!addFields(updates, '', fields, taken, capacity)) return null
  const unset = { name: '$unset', value: typedDocument(buildDocument([marker])) }
  const last = updates.at(-1)
  // The last update also removes the marker, because the marker would make a document of almost 16 MB too large.
  if (last) last.push(unset)
  else updates.push([unset])
  const q = { name: 'q', value: typedDocument(buildDocument([id, marker])) }
  return {
    insert: buildDocument([id, marker, ...fields.slice(0, taken)]),
    updates: updates.map((u) => buildDocument([q, { name: 'u', value: typedDocument(buildDocument(u)) }])),
  }
}

/** Returns the number of leading fields that fit into `capacity` bytes. */
function takePrefix(fields: RawFields, capacity: number): number {
  let bytes = 0
  const beyond = fields.findIndex((field) => {
    bytes += sizeOf(field)
    return bytes > capacity
  })
  return beyond < 0 ? fields.length : beyond
}

function sizeOf({ name, value }: RawFields[number]): number {
  return Buffer.byteLength(name) + 1 + value.length
}

/**
 * Adds updates that append the fields after the first `taken` to the document at `path`. One update sets one field,
 * because the server adds several new fields in the order of their names. Returns false if updates cannot add the
 * fields, for instance because a name occurs twice: its update would change the field that exists already.
 */
function addFields(updates: RawFields[], path: string, fields: RawFields, taken: number, capacity: number): boolean {
  const before = new Set(fields.slice(0, taken).map(({ name }) => name))
  const rest = fields.slice(taken)
  const names = new Set(rest.map(({ name }) => name))
  return (
    names.size === rest.length &&
    rest.every(
      ({ name, value }) => isPlain(name) && !before.has(name) && addValue(updates, `${path}${name}`, value, capacity),
    )
  )
}

function addValue(updates: RawFields[], path: string, value: TypedValue, capacity: number): boolean {
  const remaining = capacity - Buffer.byteLength(path)
  if (value.length <= remaining) {
    updates.push(setting(path, value))
    return true
  }
  const isArray = value[0] === bsonType.array
  if (!isArray && value[0] !== bsonType.document) return false
  const fields = readFields(embedded(value))
  const taken = takePrefix(fields, remaining)
  updates.push(setting(path, withFields(value, fields.slice(0, taken))))
  if (!isArray) return addFields(updates, `${path}.`, fields, taken, capacity)
  return isNumbered(fields) && addItems(updates, path, fields.slice(taken), remaining)
}

/** Adds updates that append these items to the array at `path`. */
function addItems(updates: RawFields[], path: string, items: RawFields, capacity: number): boolean {
  for (let from = 0; from < items.length; ) {
    const rest = items.slice(from)
    const taken = takePrefix(rest, Math.min(capacity, itemBytesMax))
    const [first] = rest as [RawFields[number]]
    if (taken > 0) updates.push(appending(path, rest.slice(0, taken)))
    else if (!addValue(updates, `${path}.${first.name}`, first.value, capacity)) return false
    from += Math.max(1, taken)
  }
  return true
}

function appending(path: string, items: RawFields): RawFields {
  const each = buildDocument(items.map(({ value }, at) => ({ name: String(at), value })))
  const list = { name: '$each', value: Buffer.concat([Buffer.from([bsonType.array]), each]) }
  const push = { name: path, value: typedDocument(buildDocument([list])) }
  return [{ name: '$push', value: typedDocument(buildDocument([push])) }]
}

function setting(path: string, value: TypedValue): RawFields {
  return [{ name: '$set', value: typedDocument(buildDocument([{ name: path, value }])) }]
}

function withFields(value: TypedValue, fields: RawFields): TypedValue {
  return Buffer.concat([value.subarray(0, 1), buildDocument(fields)])
}

/** True if the items of an array have the names that `$push` gives them. */
function isNumbered(items: RawFields): boolean {
  return items.every(({ name }, at) => name === String(at))
}

/** True if an update operator treats this name as the name of one field. */
function isPlain(name: string): boolean {
  return name !== '' && !name.startsWith('$') && !name.includes('.')
}
