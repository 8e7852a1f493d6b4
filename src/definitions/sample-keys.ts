import type { CatalogEntry } from '../domain/catalog.ts'
import type { KeyValues } from '../domain/choose-chunks.ts'
import { bsonType, type TypedValue } from '../domain/raw-bson.ts'
import { type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import type { CollectionSize } from '../mongo/sample.ts'
import { toUuid } from '../mongo/uuid.ts'

export const minKey: TypedValue = Buffer.from([bsonType.minKey])
const sampleLimitMS = 10 * 60_000

/**
 * Returns the largest number of samples. `$sample` takes this many from each shard of the source: with a random cursor
 * if they are less than a twentieth of the shard's documents, and otherwise by reading the whole shard. The limit is a
 * fortieth of the documents of an average shard, because some shards have fewer documents. A small collection may be
 * read as a whole, because this is quick.
 */
export function samplesMax({ bytes, documents }: CollectionSize, sourceShards: number): number {
  return bytes <= readWholeBytesMax ? documents : Math.floor(documents / (40 * sourceShards))
}

const readWholeBytesMax = 1024 ** 3

/** Returns the shard key values of `count` random documents of the source, in key order. Text is compared by its bytes. */
export async function sampleKeys(
  source: Cluster,
  entry: CatalogEntry,
  key: ShardKey,
  count: number,
): Promise<KeyValues[]> {
  const projection = Object.fromEntries(key.map(({ path }) => [path, 1]))
  const cursor = await RawCursor.open(
    source,
    entry.database,
    {
      aggregate: entry.sourceName,
      pipeline: [
        { $sample: { size: count } },
        { $project: { _id: 0, ...projection } },
        { $sort: new Map(key.map(({ path }) => [path, 1])) },
      ],
      cursor: {},
      collation: { locale: 'simple' },
      collectionUUID: toUuid(entry.uuid),
    },
    sampleLimitMS,
  )
  try {
    const values: KeyValues[] = []
    for (let batch = await cursor.next(); batch; batch = await cursor.next()) {
      for (const document of batch.documents) {
        const own = shardKeyValues(document, key)
        // The hash of a value is not computed here, so a hashed field gets MinKey.
        values.push(key.map(({ hashed }, at) => (hashed ? minKey : (own[at] as TypedValue))))
      }
    }
    return values
  } finally {
    await cursor.close()
  }
}

/** Returns evenly spaced values of a key whose first field is hashed. A hash is an int64, and hashes are evenly distributed. */
export function evenHashes(key: ShardKey, count: number): KeyValues[] {
  return Array.from({ length: count }, (_, at) => {
    const typed: Buffer = Buffer.alloc(9)
    typed[0] = bsonType.int64
    typed.writeBigInt64LE(lowestHash + (BigInt(at) * hashes) / BigInt(count), 1)
    return key.map((_field, field) => (field === 0 ? typed : minKey))
  })
}

const hashes = 1n << 64n
const lowestHash = -(1n << 63n)
