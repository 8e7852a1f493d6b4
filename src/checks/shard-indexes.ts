import { BSON, type Document } from 'mongodb'
import { listCollections } from '../definitions/listing.ts'
import { readDistributions } from '../definitions/sharding.ts'
import type { Finding } from '../domain/finding.ts'
import { isUserDatabase, splitNamespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { type Check, ifAllowed } from './check.ts'

/**
 * Finds indexes of a sharded source that differ between shards or are missing on some shards
 * (https://www.mongodb.com/docs/manual/tutorial/manage-indexes/#find-inconsistent-indexes-across-shards). tandem copies
 * the indexes that the router lists.
 */
export const checkShardIndexes: Check = async ({ source, selection }) => {
  if (!source.sharded) return []
  const distributions = (await readDistributions(source)).filter(
    ({ name, key }) => key !== null && isUserDatabase(splitNamespace(name).database),
  )
  const findings: Finding[] = []
  for (const { name } of distributions) {
    const { database, collection } = splitNamespace(name)
    const selected = await selection.among(database, await listCollections(source, database, collection))
    if (selected.length === 0) continue
    const command = {
      aggregate: collection,
      pipeline: [{ $indexStats: {} }, { $project: { name: 1, spec: 1, shard: 1 } }],
      cursor: { batchSize: 10_000 },
    }
    const stats = await ifAllowed(readStats(source, database, command))
    const inconsistent = stats ? inconsistentIndexes(stats) : []
    for (const index of inconsistent) {
      findings.push({
        severity: 'warning',
        name: 'InconsistentIndex',
        namespace: name,
        message: `the index ${index} of ${name} is not the same on all shards of the source that hold the collection`,
        remedy: 'drop it and create it again on the source',
      })
    }
  }
  return findings
}

interface IndexOnShard {
  name: string
  spec: Document
  shard?: string
}

/** Reads all batches, because the router's first batch may contain only the reply of the fastest shard. */
async function readStats(source: Cluster, database: string, command: Document): Promise<IndexOnShard[]> {
  const all = await RawCursor.readAll(source, database, command)
  return all.map((bytes) => BSON.deserialize(bytes) as IndexOnShard)
}

function inconsistentIndexes(stats: IndexOnShard[]): string[] {
  if (stats.some(({ shard }) => shard === undefined)) return []
  const shards = new Set(stats.map(({ shard }) => shard))
  const names = new Set(stats.map(({ name }) => name))
  return [...names].filter((name) => {
    const own = stats.filter((one) => one.name === name)
    return own.length !== shards.size || new Set(own.map(({ spec }) => JSON.stringify(spec))).size > 1
  })
}
