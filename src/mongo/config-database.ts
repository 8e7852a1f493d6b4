import type { Document } from 'mongodb'
import { embedded, fieldNamed, isTruthy, type RawFields, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'
import { RawCursor } from './raw-cursor.ts'
import { toUuid } from './uuid.ts'

export interface Shard {
  /** The `_id` in `config.shards`. */
  name: string
  /** Its members: setName/host:port,host:port */
  host: string
  /** `removeShard` has been run, and the balancer moves the shard's chunks to others. `listShards` shows the same field. */
  draining: boolean
  zones: string[]
}

/** All shards, sorted by name. */
export async function readShards(cluster: Cluster): Promise<Shard[]> {
  const found = (await readConfig(cluster, 'shards', {})).map((bytes) => readFields(bytes))
  return found
    .map((shard) => ({
      name: stringOf(fieldNamed(shard, '_id')) ?? '',
      host: stringOf(fieldNamed(shard, 'host')) ?? '',
      draining: isTruthy(fieldNamed(shard, 'draining')),
      zones: zonesOf(shard),
    }))
    .sort((one, other) => (one.name < other.name ? -1 : 1))
}

function zonesOf(shard: RawFields): string[] {
  const tags = fieldNamed(shard, 'tags')
  return tags ? readFields(embedded(tags)).map(({ value }) => stringOf(value) ?? '') : []
}

export async function listShards(cluster: Cluster): Promise<string[]> {
  return (await readShards(cluster)).map(({ name }) => name)
}

/** A range of shard key values that belongs to a zone. The fields of both bounds are those of the shard key. */
export interface ZoneRange {
  namespace: string
  /** Inclusive. */
  min: RawFields
  /** Exclusive. */
  max: RawFields
  zone: string
}

/** The zone ranges of one collection, or of all collections, in the order of their bounds. */
export async function readZoneRanges(cluster: Cluster, namespace?: string): Promise<ZoneRange[]> {
  const filter = namespace === undefined ? {} : { ns: namespace }
  return (await readConfig(cluster, 'tags', filter, { ns: 1, min: 1 })).map((bytes) => {
    const fields = readFields(bytes)
    const [min, max] = boundsOf(fields)
    return {
      ...{ namespace: stringOf(fieldNamed(fields, 'ns')) ?? '', min, max },
      zone: stringOf(fieldNamed(fields, 'tag')) ?? '',
    }
  })
}

/** A chunk of a sharded collection. The fields of both bounds are those of the shard key. */
export interface Chunk {
  /** Inclusive. */
  min: RawFields
  /** Exclusive. */
  max: RawFields
  shard: string
}

/** The chunks of the sharded collection with this UUID, in the order of their bounds. */
export async function readChunks(cluster: Cluster, uuid: string): Promise<Chunk[]> {
  return (await readConfig(cluster, 'chunks', { uuid: toUuid(uuid) }, { min: 1 })).map((bytes) => {
    const fields = readFields(bytes)
    const [min, max] = boundsOf(fields)
    return { min, max, shard: stringOf(fieldNamed(fields, 'shard')) ?? '' }
  })
}

function boundsOf(fields: RawFields): [RawFields, RawFields] {
  const bound = (name: 'min' | 'max'): RawFields => {
    const value = fieldNamed(fields, name)
    return value ? readFields(embedded(value)) : []
  }
  return [bound('min'), bound('max')]
}

/** Reads the documents of a collection of the config database with read concern majority, as raw bytes. */
export function readConfig(cluster: Cluster, collection: string, filter: Document, sort?: Document): Promise<Buffer[]> {
  const sorted = sort ? { sort } : {}
  return RawCursor.readAll(cluster, 'config', {
    find: collection,
    filter,
    ...sorted,
    readConcern: { level: 'majority' },
  })
}
