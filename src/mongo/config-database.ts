import type { Document } from 'mongodb'
import { fieldNamed, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'
import { RawCursor } from './raw-cursor.ts'

export async function listShards(cluster: Cluster): Promise<string[]> {
  const found = await readConfig(cluster, 'shards', {})
  return found.map((bytes) => stringOf(fieldNamed(readFields(bytes), '_id')) ?? '').sort()
}

/** Reads the documents of a collection of the config database with read concern majority, as raw bytes. */
export function readConfig(cluster: Cluster, collection: string, filter: Document): Promise<Buffer[]> {
  return RawCursor.readAll(cluster, 'config', { find: collection, filter, readConcern: { level: 'majority' } })
}
