import { type Document, ObjectId, Timestamp } from 'mongodb'
import type { CollectionEntry, DatabaseEntry } from './catalog.ts'
import type { Mongos } from './command.ts'

const unsharded = {
  e: new ObjectId('000000000000000000000000'),
  t: new Timestamp(0n),
  v: new Timestamp(0n),
}

/**
 * Returns the versions for a command that is sent directly to a shard, by owning shard. A shard rejects the command if its
 * routing information has another version because chunks or the database have moved. The versions also make the shard
 * exclude orphans from reads.
 */
export async function versionsOf(
  collection: CollectionEntry | undefined,
  database: DatabaseEntry,
  { catalog }: Mongos,
): Promise<Map<string, Document>> {
  if (!collection) {
    // The databases of the config server have no versions.
    const versions = database.version ? { shardVersion: unsharded, databaseVersion: database.version } : {}
    return new Map([[database.primary, versions]])
  }
  const { lastmodEpoch: e, timestamp: t } = collection
  const owners = await catalog.owners(collection)
  return new Map(owners.map(({ shard, version: v }) => [shard, { shardVersion: { e, t, v } }]))
}
