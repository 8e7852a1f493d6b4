import { listCollections, listDatabases, listIndexes } from '../definitions/listing.ts'
import { isCollated } from '../domain/definition.ts'
import type { Finding } from '../domain/finding.ts'
import { namespace } from '../domain/namespace.ts'
import { requestedShardKey, supportsShardKey } from '../domain/shard-key.ts'
import { type Check, problem } from './check.ts'
import { isIdKey } from './refuse-sharding.ts'

/**
 * Maximum number of indexes of a collection, including the `_id` index
 * (https://www.mongodb.com/docs/manual/reference/limits/#indexes).
 */
const indexesMax = 64

/**
 * Checks that no collection already has the maximum number of indexes if tandem must create an index that supports its
 * shard key.
 */
export const checkIndexLimit: Check = async ({ configuration, source, selection }) => {
  const { sharding } = configuration
  if (!sharding?.createSupportingIndexes) return []
  const present = new Set(await listDatabases(source))
  const findings: Finding[] = []
  for (const { database, collection, shardCollection } of sharding.shardingEntries) {
    if (!present.has(database)) continue
    const [one] = await selection.among(database, await listCollections(source, database, collection))
    const indexes = one?.uuid ? ((await listIndexes(source, database, one.uuid)) ?? []) : []
    const key = requestedShardKey(shardCollection.key)
    if (one && isIdKey(key) && !isCollated(one.options)) continue
    const supported = indexes.some((index) => supportsShardKey(index, key))
    if (supported || indexes.length + 1 < indexesMax) continue
    const name = namespace(database, collection)
    findings.push({
      ...problem(
        'UnsupportedCollection',
        `${name} has ${indexesMax} indexes, the maximum, and none of them supports the requested shard key`,
        'drop one of them on the source, or replace one of them with an index for the shard key',
      ),
      namespace: name,
    })
  }
  return findings
}
