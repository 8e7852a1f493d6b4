import { shardsMissing } from '../definitions/zones.ts'
import { isUserDatabase, splitNamespace } from '../domain/namespace.ts'
import { readShards, readZoneRanges, type ZoneRange } from '../mongo/config-database.ts'
import type { Selection } from '../mongo/selection.ts'
import { type Check, ifAllowed } from './check.ts'

/**
 * Warns if zones of the source cannot all be copied, because a shard in one of them has no counterpart on the
 * destination.
 */
export const checkZones: Check = async ({ configuration, source, destination, selection }) => {
  if (!source.sharded || !destination.sharded) return []
  const ranges = await selected(selection, (await ifAllowed(readZoneRanges(source))) ?? [])
  const [first] = ranges
  if (!first) return []
  const zones = new Set(ranges.map(({ zone }) => zone))
  const missing = shardsMissing(zones, await readShards(source), await readShards(destination), source)
  if (missing.length === 0) return []
  const named = new Set(ranges.map(({ namespace }) => namespace)).size
  const others = named > 1 ? ` and of ${named - 1} more ${named === 2 ? 'collection' : 'collections'}` : ''
  return [
    {
      severity: 'warning',
      name: 'ZonesNotCopied',
      namespace: first.namespace,
      message: `the zones of ${first.namespace}${others} cannot all be copied, because the destination has no shard named ${missing.join(' or ')}`,
      remedy: configuration.namespaceRemap
        ? 'start all instances with --shardNames if the shards only have other names. Otherwise create the zones on the destination before the start, or after COMMITTED, with the names that the databases have there; tandem inventory prints the commands with the names of the source'
        : 'start all instances with --shardNames if the shards only have other names. Otherwise create the zones on the destination before the start, or after COMMITTED; tandem inventory prints the commands',
    },
  ]
}

async function selected(selection: Selection, ranges: ZoneRange[]): Promise<ZoneRange[]> {
  const found: ZoneRange[] = []
  for (const range of ranges) {
    const { database, collection } = splitNamespace(range.namespace)
    if (isUserDatabase(database) && (await selection.selects(database, collection))) found.push(range)
  }
  return found
}
