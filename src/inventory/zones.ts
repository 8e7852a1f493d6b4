import type { Document } from 'mongodb'
import type { InventoryCluster } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { shellText, shellValue } from './shell-text.ts'

const privilege = 'find on the database config (in the role clusterMonitor)'

/** Ranges of shard key values that belong to a zone. */
export const zoneRanges: Kind = {
  name: 'zone range',
  privilege,
  read: async (cluster) => ((await cluster.isSharded()) ? await readRanges(cluster) : null),
  commands: rangeCommands,
}

/** The zones of each shard. Shards of different clusters are compared by their names. */
export const shardZones: Kind = {
  name: 'zone of a shard',
  privilege,
  read: async (cluster) => ((await cluster.isSharded()) ? await readShards(cluster) : null),
  commands: shardCommands,
}

async function readRanges(cluster: InventoryCluster): Promise<Item[]> {
  const ranges = await cluster.aggregate('config', 'tags', [])
  return ranges.map(({ ns, min, max, tag }) => ({
    name: `${ns} from ${shellValue(min)}`,
    value: { ns, min, max, tag },
  }))
}

async function readShards(cluster: InventoryCluster): Promise<Item[]> {
  const shards = await cluster.aggregate('config', 'shards', [])
  return shards.flatMap(({ _id: shard, tags = [] }) =>
    (tags as string[]).map((zone) => ({ name: `${zone} on ${shard}`, value: { shard, zone } })),
  )
}

function rangeCommands({ how, ours, theirs }: Pair): Command[] {
  if (how === 'extra') return [{ text: removal(theirs.value), review: 'removes a range, and may move chunks' }]
  const added = { text: addition(ours.value) }
  return how === 'different' ? [{ text: removal(theirs.value) }, added] : [added]
}

function addition({ ns, min, max, tag }: Document): string {
  return `sh.updateZoneKeyRange(${shellText(ns)}, ${shellValue(min)}, ${shellValue(max)}, ${shellText(tag)})`
}

function removal({ ns, min, max }: Document): string {
  return `sh.removeRangeFromZone(${shellText(ns)}, ${shellValue(min)}, ${shellValue(max)})`
}

function shardCommands({ how, ours, theirs }: Pair): Command[] {
  const { shard, zone } = (ours ?? theirs).value
  const given = `${shellText(shard)}, ${shellText(zone)}`
  if (how === 'extra') return [{ text: `sh.removeShardFromZone(${given})`, review: 'moves chunks' }]
  return [{ text: `sh.addShardToZone(${given})`, review: 'the shards of the two clusters may have different names' }]
}
