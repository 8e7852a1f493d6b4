import type { Document } from 'mongodb'
import type { ChunkStart } from '../domain/chunk-map.ts'
import { embedded, fieldNamed, isTruthy, type RawFields, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'
import { RawCursor } from './raw-cursor.ts'
import { toUuid } from './uuid.ts'

export interface Shard {
  /** The `_id` in `config.shards`. */
  name: string
  /** Its members: setName/host:port,host:port */
  host: string
  /**
   * True if `removeShard` was run for this shard. The balancer then moves its chunks to other shards. The server's command
   * `listShards` shows the same field.
   */
  draining: boolean
  zones: string[]
}

/** Returns all shards, sorted by name. */
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

/** Returns the zone ranges of one collection, or of all collections, in the order of their bounds. */
export async function readZoneRanges(cluster: Cluster, namespace?: string): Promise<ZoneRange[]> {
  const { names } = cluster
  const filter = namespace === undefined ? {} : { ns: names.namespaceOnDestination(namespace) }
  return (await readConfig(cluster, 'tags', filter, { ns: 1, min: 1 })).map((bytes) => {
    const fields = readFields(bytes)
    const [min, max] = boundsOf(fields)
    return {
      ...{ namespace: names.namespaceOnSource(stringOf(fieldNamed(fields, 'ns')) ?? ''), min, max },
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

/** Returns the chunks of the sharded collection with this UUID, in the order of their bounds. */
export async function readChunks(cluster: Cluster, uuid: string): Promise<Chunk[]> {
  return (await readConfig(cluster, 'chunks', { uuid: toUuid(uuid) }, { min: 1 })).map((bytes) => {
    const fields = readFields(bytes)
    const [min, max] = boundsOf(fields)
    return { min, max, shard: stringOf(fieldNamed(fields, 'shard')) ?? '' }
  })
}

/**
 * Returns the lower bound and the shard of each chunk of a collection, in the order of the bounds; null if there are more
 * than `max`.
 */
export async function readChunkStarts(cluster: Cluster, uuid: string, max: number): Promise<ChunkStart[] | null> {
  const found = await RawCursor.readAll(cluster, 'config', {
    find: 'chunks',
    filter: { uuid: toUuid(uuid) },
    sort: { min: 1 },
    projection: { min: 1, shard: 1 },
    limit: max + 1,
    readConcern: { level: 'majority' },
  })
  if (found.length > max) return null
  return found.map((bytes) => {
    const fields = readFields(bytes)
    const min = boundsOf(fields)[0].map(({ value }) => value)
    return { min, shard: stringOf(fieldNamed(fields, 'shard')) ?? '' }
  })
}

/** If at most this many collections are requested, the query names them. Otherwise it reads the chunks of all collections. */
const namedMax = 16

/**
 * Returns the names of the shards that own chunks of these collections, by the UUID of the collection. A collection
 * without chunks in `config.chunks` has no entry. The result may contain other collections as well.
 */
export async function readChunkOwners(cluster: Cluster, uuids: readonly string[]): Promise<Map<string, string[]>> {
  const named = uuids.length <= namedMax ? [{ $match: { uuid: { $in: uuids.map(toUuid) } } }] : []
  const found = await RawCursor.readAll(cluster, 'config', {
    aggregate: 'chunks',
    pipeline: [...named, { $group: { _id: { uuid: '$uuid', shard: '$shard' } } }],
    cursor: { batchSize: 10_000 },
    readConcern: { level: 'majority' },
  })
  const owners = new Map<string, string[]>()
  for (const bytes of found) {
    const id = fieldNamed(readFields(bytes), '_id')
    const fields = id ? readFields(embedded(id)) : []
    const [uuid, shard] = [fieldNamed(fields, 'uuid')?.latin1Slice(6), stringOf(fieldNamed(fields, 'shard'))]
    if (uuid === undefined || shard === undefined) continue
    owners.set(uuid, [...(owners.get(uuid) ?? []), shard])
  }
  return owners
}

/** Returns a text that changes when a chunk of the collection is split, merged or moved. */
export async function chunksVersion(cluster: Cluster, uuid: string): Promise<string> {
  const [newest] = await RawCursor.readAll(cluster, 'config', {
    find: 'chunks',
    filter: { uuid: toUuid(uuid) },
    sort: { lastmod: -1 },
    limit: 1,
    readConcern: { level: 'majority' },
  })
  return newest?.toString('base64') ?? ''
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
