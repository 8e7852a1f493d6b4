import type { Document } from 'mongodb'
import { fieldNamed, isTruthy, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'
import { RawCursor } from './raw-cursor.ts'

export interface Shard {
  /** The `_id` in `config.shards`. */
  name: string
  /** `removeShard` has been run, and the balancer moves the shard's chunks to others. `listShards` shows the same field. */
  draining: boolean
}

/** All shards, sorted by name. */
export async function readShards(cluster: Cluster): Promise<Shard[]> {
  const found = (await readConfig(cluster, 'shards', {})).map((bytes) => readFields(bytes))
  return found
    .map((shard) => ({
      name: stringOf(fieldNamed(shard, '_id')) ?? '',
      draining: isTruthy(fieldNamed(shard, 'draining')),
    }))
    .sort((one, other) => (one.name < other.name ? -1 : 1))
}

export async function listShards(cluster: Cluster): Promise<string[]> {
  return (await readShards(cluster)).map(({ name }) => name)
}

/** Reads the documents of a collection of the config database with read concern majority, as raw bytes. */
export function readConfig(cluster: Cluster, collection: string, filter: Document): Promise<Buffer[]> {
  return RawCursor.readAll(cluster, 'config', { find: collection, filter, readConcern: { level: 'majority' } })
}
