import { readDistribution } from '../definitions/sharding.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { ChunkMap } from '../domain/chunk-map.ts'
import { namespace } from '../domain/namespace.ts'
import { shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readChunkStarts } from '../mongo/config-database.ts'
import { isTransient } from '../mongo/errors.ts'

/** A collection with more chunks is not examined. */
const chunksMax = 50_000

/**
 * Returns for each document, in the order of `documents`, the shard of the destination that owns it, or null if that is
 * not known. Returns null if the collection is not sharded, has more than `chunksMax` chunks, or its chunks cannot be
 * read or do not fit its shard key. Throws transient errors.
 */
export async function shardsOf(
  destination: Cluster,
  entry: CatalogEntry,
  documents: readonly Buffer[],
): Promise<(string | null)[] | null> {
  const { destinationUUID: uuid } = entry
  try {
    const distribution = uuid && (await readDistribution(destination, namespace(entry.database, entry.name), uuid))
    const key = distribution ? distribution.key : null
    const starts = uuid && key ? await readChunkStarts(destination, uuid, chunksMax) : null
    const map = key && starts ? new ChunkMap(key, starts) : null
    if (!key || !map?.isConsistent) return null
    return documents.map((document) => map.locate(shardKeyValues(document, key))?.shard ?? null)
  } catch (error) {
    if (isTransient(error)) throw error
    return null // for example, this user may not read the config database
  }
}
