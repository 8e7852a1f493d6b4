import { BSON, type Document } from 'mongodb'
import type { Difference } from './difference.ts'

/** Fields of the specifications in `$indexStats` that do not change what the index does. */
const ignoredFields = new Set(['v', 'ns', 'background'])

/**
 * Lists the indexes that differ between the shards of one cluster.
 * @param rows documents of `$indexStats`, one for each index on each shard
 * @param shards the shards that own chunks of the collection
 */
export function compareShards(
  namespace: string,
  cluster: string,
  { rows, shards }: { rows: Document[]; shards: readonly string[] },
  isCompared: (key: Document) => boolean,
): Difference[] {
  const differences: Difference[] = []
  const compared = rows.filter(({ key }) => isCompared(key as Document))
  for (const index of [...new Set(compared.map(({ name }) => name as string))].sort()) {
    const finished = compared.filter(({ name, building }) => name === index && building !== true)
    const [first] = finished
    for (const shard of [...shards].sort()) {
      const one = finished.find((row) => row['shard'] === shard)
      const how = !one ? 'missing' : shown(one) === shown(first) ? null : 'different'
      if (how) differences.push({ namespace, what: 'shardIndex', how, index, cluster, shard })
    }
  }
  return differences
}

/** Returns the specification as text. The order of its fields has no meaning, but the order of the key's fields does. */
function shown(row: Document | undefined): string {
  const fields = Object.entries((row?.['spec'] ?? {}) as Document).filter(([name]) => !ignoredFields.has(name))
  return BSON.EJSON.stringify(Object.fromEntries(fields.sort(([one], [other]) => (one < other ? -1 : 1))))
}
