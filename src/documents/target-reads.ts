import type { KeyValues } from '../domain/choose-chunks.ts'
import type { ChunkMap } from '../domain/chunk-map.ts'
import { findSpan, type TypedValue, typedValue } from '../domain/raw-bson.ts'
import { isAddressable, nullValue, type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { FieldCondition } from './read-documents.ts'

/** Documents that one command can read from one shard. */
export interface TargetedGroup<T> {
  items: T[]
  /** Conditions on leading fields of the shard key. All documents meet them, and they decide the shard. */
  conditions: FieldCondition[]
}

export interface ReadPlan<T> {
  groups: TargetedGroup<T>[]
  /** Documents that must be read by `_id` alone. */
  byId: T[]
}

/** The largest number of documents in a group. */
const groupMax = 1_000
/** Up to this many groups of a batch get a command of their own, even if each of them has only one document. */
const commandsMax = 64
/** A group of at least this size always gets a command of its own. */
const worthCommand = 8

/**
 * Divides changed documents into groups of one shard each. A router sends a command to one shard only if the command
 * names values of the shard key's first fields that are all on this shard. If several fields have many values each, the
 * router widens the values of the later fields to a range from the smallest to the largest one (`flattenBounds`,
 * src/mongo/s), and this range may lie on more shards. Therefore only the last field that a group names may have several
 * values.
 * @param keyOf the document key of the newest event (`ChangeEvent.documentKey`); null if it is not known
 */
export function planReads<T>(map: ChunkMap, items: readonly T[], keyOf: (item: T) => Buffer | null): ReadPlan<T> {
  const byId: T[] = []
  const groups = new Map<string, { fields: number; members: { item: T; values: KeyValues }[] }>()
  for (const item of items) {
    const key = keyOf(item)
    const values = key && valuesOfKey(key, map.key)
    const location = values && map.locate(values)
    if (!values || !location || !values.slice(0, location.fields).every(isAddressable)) {
      byId.push(item)
      continue
    }
    const { shard, fields } = location
    const equal = values.slice(0, fields - 1).map((value) => value.latin1Slice())
    const name = JSON.stringify([shard, fields, ...equal])
    const group = groups.get(name)
    if (group) group.members.push({ item, values })
    else groups.set(name, { fields, members: [{ item, values }] })
  }
  const all = [...groups.values()].sort((one, other) => other.members.length - one.members.length)
  const targeted = all.filter(({ members }, at) => at < commandsMax || members.length >= worthCommand)
  for (const { members } of all.slice(targeted.length)) byId.push(...members.map(({ item }) => item))
  return {
    byId,
    groups: targeted.flatMap(({ fields, members }) => {
      const parts: TargetedGroup<T>[] = []
      for (let from = 0; from < members.length; from += groupMax) {
        const part = members.slice(from, from + groupMax)
        const conditions = map.key
          .slice(0, fields)
          .map(({ path }, at) => ({ path, values: distinct(part.map(({ values }) => values[at] as TypedValue)) }))
          .filter(({ path }) => path !== '_id')
        parts.push({ items: part.map(({ item }) => item), conditions })
      }
      return parts
    }),
  }
}

/**
 * True if the document has exactly the shard key values that its event named. If not, it may be another document with
 * the same `_id`, or its key was changed.
 */
export function hasKey(document: Buffer, documentKey: Buffer, key: ShardKey): boolean {
  const named = valuesOfKey(documentKey, key)
  return shardKeyValues(document, key).every((value, at) => value.equals(named[at] as TypedValue))
}

/**
 * Returns the values of a shard key in a document key; null if the document key does not name all fields. It does not
 * name fields that the document lacks, nor fields that were added to the shard key after the event.
 */
export function namedValues(documentKey: Buffer, key: ShardKey): TypedValue[] | null {
  const values: TypedValue[] = []
  for (const { path } of key) {
    const span = findSpan(documentKey, Buffer.from(path, 'utf8').latin1Slice())
    if (!span) return null
    values.push(typedValue(documentKey, span))
  }
  return values
}

/** A documentKey has dotted paths as names, and omits the fields that the document does not have (observed on 6.0.27). */
function valuesOfKey(documentKey: Buffer, key: ShardKey): TypedValue[] {
  return key.map(({ path }) => {
    const span = findSpan(documentKey, Buffer.from(path, 'utf8').latin1Slice())
    return span ? typedValue(documentKey, span) : nullValue
  })
}

function distinct(values: readonly TypedValue[]): TypedValue[] {
  return [...new Map(values.map((value) => [value.latin1Slice(), value])).values()]
}
