import { type IndexSpecification, indexName, secondaryIndexes } from '../domain/definition.ts'
import { type ExistingIndexes, existingIndexes, type UnevenIndex, unevenIndexes } from '../domain/existing-indexes.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { embedded, fieldNamed, isTruthy, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { underPresentName } from '../mongo/collection-name.ts'
import { readChunkOwners } from '../mongo/config-database.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { toUuid } from '../mongo/uuid.ts'
import { asListed } from './as-listed.ts'
import { type Located, listIndexes } from './listing.ts'

/**
 * Reads the indexes of the individual shards of a sharded cluster, through its router.
 *
 * A router sends createIndexes to every shard that owns chunks of the collection. Each shard builds the index by
 * itself, and if one fails, the others keep theirs (cluster_create_indexes_cmd.cpp,
 * `scatterGatherVersionedTargetByRoutingTable`). The router answers listIndexes only from the shard that has the first
 * chunk (cluster_list_indexes_cmd.cpp), so only `$indexStats` shows the indexes of the other shards. It also returns
 * indexes that are still being built, with `building: true`.
 */

/** Returns the finished secondary indexes of a collection, or none if the collection does not exist. */
export async function readExistingIndexes(
  cluster: Cluster,
  { database, name, uuid, isSharded }: Located & { isSharded: boolean },
): Promise<ExistingIndexes> {
  const listed = (await listIndexes(cluster, database, uuid)) ?? []
  if (!cluster.sharded || !isSharded) return { indexes: listed }
  return existingIndexes(listed, (await readUnevenIndexes(cluster, [{ database, name, uuid }], 1)).get(uuid))
}

/**
 * Returns the indexes that differ between shards, by the UUID of their collection. The result is empty for a replica
 * set. Collections that have chunks on only one shard are not read.
 * @param width number of parallel commands
 */
export async function readUnevenIndexes(
  cluster: Cluster,
  located: readonly Located[],
  width: number,
): Promise<Map<string, UnevenIndex[]>> {
  const found = new Map<string, UnevenIndex[]>()
  if (!cluster.sharded || located.length === 0) return found
  const ownersOf = await readChunkOwners(
    cluster,
    located.map(({ uuid }) => uuid),
  )
  const spread = located.filter(({ uuid }) => (ownersOf.get(uuid)?.length ?? 0) > 1)
  await inParallel(width, spread, async (one) => {
    const uneven = unevenIndexes(await readOnShards(cluster, one, ownersOf.get(one.uuid) ?? []))
    if (uneven.length > 0) found.set(one.uuid, uneven)
  })
  return found
}

type OnShard = { finished: IndexSpecification[]; unfinished: string[] }

/** Reads all batches, because the router's first batch may contain only the reply of the fastest shard. */
async function readOnShards(
  cluster: Cluster,
  { database, name, uuid }: Located,
  owners: readonly string[],
): Promise<Map<string, OnShard>> {
  let rows: Buffer[] = []
  await underPresentName({ name }, async (present) => {
    try {
      rows = await RawCursor.readAll(cluster, database, {
        aggregate: present,
        pipeline: [{ $indexStats: {} }, { $project: { shard: 1, spec: 1, building: 1 } }],
        collectionUUID: toUuid(uuid),
        cursor: { batchSize: 10_000 },
      })
    } catch (error) {
      // $indexStats fails if an index is dropped while it reads.
      if (codeOf(error) === code.indexNotFound) throw new TransientReplyError('an index was dropped while it was read')
      throw error
    }
  })
  const onShards = new Map<string, OnShard>()
  let hasIdIndex = false
  for (const row of rows.map((bytes) => readFields(bytes))) {
    const shard = stringOf(fieldNamed(row, 'shard'))
    const nested = fieldNamed(row, 'spec')
    if (shard === undefined || !nested) return new Map()
    const of = onShards.get(shard) ?? { finished: [], unfinished: [] }
    onShards.set(shard, of)
    const specification = readFields(embedded(nested)).map(asListed)
    hasIdIndex ||= indexName(specification) === '_id_'
    if (isTruthy(fieldNamed(row, 'building'))) of.unfinished.push(indexName(specification))
    else of.finished.push(...secondaryIndexes([specification]))
  }
  // A clustered collection has no index on `_id`, so a shard without any other index returns no row. In any other
  // collection, a shard that returns no row has lost its last chunk since the owners were read.
  if (rows.length > 0 && !hasIdIndex) {
    for (const owner of owners) if (!onShards.has(owner)) onShards.set(owner, { finished: [], unfinished: [] })
  }
  return onShards
}
