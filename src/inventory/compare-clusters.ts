import { clusterParameters } from './cluster-parameters.ts'
import { compatibility } from './compatibility.ts'
import { type InventoryCluster, isUnauthorized } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { profiler } from './profiler.ts'
import { roles } from './roles.ts'
import { searchIndexes } from './search-indexes.ts'
import { canonical } from './shell-text.ts'
import { users } from './users.ts'
import { shardZones, zoneRanges } from './zones.ts'

/** Roles come before users, because users have roles. */
const kinds: readonly Kind[] = [
  roles,
  users,
  shardZones,
  zoneRanges,
  searchIndexes,
  clusterParameters,
  profiler,
  compatibility,
]

export interface InventoryDifference {
  kind: string
  name: string
  /** Where the item is: only on cluster0 (missing), only on cluster1 (extra), or different on both. */
  how: Pair['how']
  /** The fields that differ. */
  fields: string[]
  /** For mongosh, connected to cluster1. */
  commands: Command[]
}

/** A kind that was not compared. */
export interface NotCompared {
  kind: string
  cluster: string
  reason: string
  /** The privilege that the user lacks; absent if there is another reason. */
  privilege?: string
}

export interface InventoryReport {
  differences: InventoryDifference[]
  notCompared: NotCompared[]
  /** The kinds that were compared. */
  compared: string[]
}

/** Reads from both clusters the items that tandem does not sync, and compares them. */
export async function compareClusters(left: InventoryCluster, right: InventoryCluster): Promise<InventoryReport> {
  const report: InventoryReport = { differences: [], notCompared: [], compared: [] }
  await Promise.all([left.isSharded(), right.isSharded()])
  for (const kind of kinds) {
    const both = await Promise.all([left, right].map((cluster) => readItems(kind, cluster)))
    const refused = both.filter((one): one is NotCompared => one !== null && !Array.isArray(one))
    report.notCompared.push(...refused)
    if (refused.length > 0) continue
    const [ours, theirs] = both as (Item[] | null)[]
    if (ours && theirs) {
      report.compared.push(kind.name)
      report.differences.push(...differencesOf(kind, ours, theirs))
    } else if (ours?.length || theirs?.length) {
      const cluster = ours ? right.name : left.name
      report.notCompared.push({
        kind: kind.name,
        cluster,
        reason: 'this kind does not exist, or cannot be read, in the release or topology of this cluster',
      })
    }
  }
  return report
}

async function readItems(kind: Kind, cluster: InventoryCluster): Promise<Item[] | null | NotCompared> {
  try {
    return await kind.read(cluster)
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error)) throw error
    const missing = { kind: kind.name, cluster: cluster.name, reason: error.message }
    return isUnauthorized(error) ? { ...missing, privilege: kind.privilege } : missing
  }
}

function differencesOf(kind: Kind, ours: Item[], theirs: Item[]): InventoryDifference[] {
  const others = new Map(theirs.map((item) => [item.name, item]))
  const pairs: Pair[] = []
  for (const item of kind.inOrder?.(ours) ?? ours) {
    const other = others.get(item.name)
    others.delete(item.name)
    if (!other) pairs.push({ how: 'missing', ours: item, theirs: null })
    else if (fieldsOf(item, other).length > 0) pairs.push({ how: 'different', ours: item, theirs: other })
  }
  for (const item of others.values()) pairs.push({ how: 'extra', ours: null, theirs: item })
  return pairs.map((pair) => ({
    kind: kind.name,
    name: (pair.ours ?? pair.theirs).name,
    how: pair.how,
    fields: pair.how === 'different' ? fieldsOf(pair.ours, pair.theirs) : [],
    commands: kind.commands(pair),
  }))
}

function fieldsOf(ours: Item, theirs: Item): string[] {
  const names = new Set([...Object.keys(ours.value), ...Object.keys(theirs.value)])
  return [...names].filter((name) => canonical(ours.value[name] ?? null) !== canonical(theirs.value[name] ?? null))
}
