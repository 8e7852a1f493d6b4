import type { TypedValue } from '../domain/raw-bson.ts'
import { findSpan, typedValue } from '../domain/raw-bson.ts'
import { type Cluster, RawCursor } from './cluster.ts'
import { type SourceCollection, unlessGone } from './collection-name.ts'
import { toUuid } from './uuid.ts'

export interface CollectionSize {
  bytes: number
  documents: number
}

/** A sample of more than a twentieth reads the whole collection. */
const sampleLimitMS = 30 * 60_000

/** Size and count from the collection's storage statistics, which are cheap and sufficient for an estimate. */
export async function sizeOf(cluster: Cluster, collection: SourceCollection): Promise<CollectionSize> {
  const command = {
    aggregate: collection.name,
    pipeline: [
      { $collStats: { storageStats: {} } },
      { $project: { s: '$storageStats.size', c: '$storageStats.count' } },
    ],
    cursor: {},
    // The only command on 5.0.32 that also accepts this field.
    collectionUUID: toUuid(collection.uuid),
  }
  const reply = await unlessGone(cluster, cluster.read(collection.database, command))
  // The reply has one document, or one for each shard that has a part of the collection.
  const size = { bytes: 0, documents: 0 }
  for (const { s = 0, c = 0 } of reply['cursor'].firstBatch as { s?: number; c?: number }[]) {
    size.bytes += Number(s)
    size.documents += Number(c)
  }
  return size
}

/**
 * `count` random `_id`s in the order of the collection's `_id` index. For less than a twentieth of a collection,
 * $sample uses a random cursor, so the cost does not grow with the collection.
 */
export async function sampleIds(cluster: Cluster, collection: SourceCollection, count: number): Promise<TypedValue[]> {
  const command = {
    aggregate: collection.name,
    pipeline: [{ $sample: { size: count } }, { $project: { _id: 1 } }, { $sort: { _id: 1 } }],
    cursor: {},
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
