import type { Document } from 'mongodb'
import { both } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { TypedValue } from '../domain/raw-bson.ts'
import { findSpan, typedValue } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'
import { type CollectionToRead, renamedTo, unlessGone } from './collection-name.ts'
import { code, codeOf, isTransient } from './errors.ts'
import { RawCursor } from './raw-cursor.ts'
import { RawValue } from './raw-values.ts'
import { toUuid } from './uuid.ts'

export interface CollectionSize {
  bytes: number
  documents: number
}

/** Time limit in ms. A sample of more than a twentieth of a collection reads all of it. */
const sampleLimitMS = 30 * 60_000

/**
 * Reads the size and the number of documents as the server knows them without reading the collection. They are sufficient
 * for an estimate.
 *
 * `$collStats` with `storageStats` returns both, but takes a server of 6.0.27 about a millisecond of CPU time, most of it
 * for statistics of WiredTiger that are not needed. The two commands that a replica set receives instead only read counters.
 */
export async function sizeOf(cluster: Cluster, collection: CollectionToRead): Promise<CollectionSize> {
  const fromStatistics = async (): Promise<CollectionSize> => {
    const [bytes, documents] = await storageStatistics(cluster, collection, 'size', 'count')
    return { bytes, documents }
  }
  if (cluster.sharded) return await fromStatistics()
  try {
    const [documents, bytes] = await both(documentsOf(cluster, collection), bytesOf(cluster, collection))
    return { bytes, documents }
  } catch (error) {
    if (codeOf(error) === undefined || isTransient(error) || renamedTo(error) !== undefined) throw error
    // For example, the service that runs the cluster may not allow `dataSize`.
    return await fromStatistics()
  }
}

/** Reads the number of documents as the server knows it without reading the collection. */
export async function documentsOf(cluster: Cluster, collection: CollectionToRead): Promise<number> {
  const counted = await statistics(cluster, collection, [{ $collStats: { count: {} } }, { $project: { count: 1 } }])
  return counted.reduce((sum, { count = 0 }) => sum + Number(count), 0)
}

/**
 * `dataSize` accepts no UUID, so the size may be that of a collection that has taken the name. `documentsOf`, which runs
 * beside it, reports the rename.
 */
async function bytesOf(cluster: Cluster, { database, name }: CollectionToRead): Promise<number> {
  const dataSize = namespace(database, name)
  return Number((await cluster.read(database, { dataSize, estimate: true }))['size'] ?? 0)
}

/** Returns the bytes on disk of a collection and its indexes: compressed, and with the space that its files can reuse. */
export async function diskBytesOf(cluster: Cluster, collection: CollectionToRead): Promise<number> {
  const [documents, indexes] = await storageStatistics(cluster, collection, 'storageSize', 'totalIndexSize')
  return documents + indexes
}

async function storageStatistics(
  cluster: Cluster,
  collection: CollectionToRead,
  ...[first, second]: [string, string]
): Promise<[number, number]> {
  const read = await statistics(cluster, collection, [
    { $collStats: { storageStats: {} } },
    { $project: { a: `$storageStats.${first}`, b: `$storageStats.${second}` } },
  ])
  const sums: [number, number] = [0, 0]
  for (const { a = 0, b = 0 } of read) {
    sums[0] += Number(a)
    sums[1] += Number(b)
  }
  return sums
}

/** @returns one document, or one for each shard that has a part of the collection */
async function statistics(
  cluster: Cluster,
  collection: CollectionToRead,
  pipeline: Document[],
): Promise<Record<string, number | undefined>[]> {
  const command = {
    aggregate: collection.name,
    pipeline,
    cursor: {},
    // On 5.0.32, aggregate is the only command that accepts this field.
    collectionUUID: toUuid(collection.uuid),
  }
  const read = (): Promise<Document> => cluster.read(collection.database, command)
  const reply = await unlessGone(
    cluster,
    read().catch(async (error) => {
      if (codeOf(error) !== code.namespaceNotFound) throw error
      // The collection was renamed or dropped during the command: $collStats finds the collection by its UUID, and then
      // its statistics by its name.
      return await read()
    }),
  )
  return reply['cursor'].firstBatch
}

/**
 * Returns `count` random `_id`s in the order of the collection's `_id` index. For less than a twentieth of a collection,
 * $sample uses a random cursor, so the cost does not grow with the collection.
 */
export async function sampleIds(cluster: Cluster, collection: CollectionToRead, count: number): Promise<TypedValue[]> {
  const command = {
    aggregate: collection.name,
    pipeline: [{ $sample: { size: count } }, { $project: { _id: 1 } }, { $sort: { _id: 1 } }],
    // By default, the first reply has 101 documents, and a second one would follow.
    cursor: { batchSize: count + 1 },
    collectionUUID: toUuid(collection.uuid),
  }
  const cursor = await unlessGone(cluster, RawCursor.open(cluster, collection.database, command, sampleLimitMS))
  try {
    const ids: TypedValue[] = []
    for (let batch = await cursor.next(); batch; batch = await cursor.next()) {
      for (const document of batch.documents) {
        const span = findSpan(document, '_id')
        if (span) ids.push(typedValue(document, span))
      }
    }
    return ids
  } finally {
    await cursor.close()
  }
}

/**
 * Returns the record ids of the documents with these `_id`s, in the order of the collection's `_id` index. Omits documents
 * that no longer exist. Reads only the index. Do not use it for clustered collections or through mongos.
 */
export async function recordIdsOf(
  cluster: Cluster,
  collection: CollectionToRead,
  ids: readonly TypedValue[],
): Promise<bigint[]> {
  const uuid = toUuid(collection.uuid)
  const command = {
    ...(cluster.before6 ? { find: uuid } : { find: collection.name, collectionUUID: uuid }),
    filter: { _id: { $in: ids.map((id) => new RawValue(id)) } },
    hint: { _id: 1 },
    sort: { _id: 1 },
    projection: { _id: 1 },
    showRecordId: true,
  }
  const documents = await unlessGone(cluster, RawCursor.readAll(cluster, collection.database, command))
  return documents.flatMap((document) => {
    const span = findSpan(document, '$recordId')
    return span ? [document.readBigInt64LE(span.valueStart)] : []
  })
}
