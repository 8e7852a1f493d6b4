import { type InventoryCluster, isUnknown } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { shellText } from './shell-text.ts'

/** The featureCompatibilityVersion. A router has none. */
export const compatibility: Kind = {
  name: 'cluster setting',
  privilege: 'getParameter on the cluster (in the role clusterMonitor)',
  read: readCompatibility,
  commands,
}

async function readCompatibility(cluster: InventoryCluster): Promise<Item[] | null> {
  if (await cluster.isSharded()) return null
  try {
    const reply = await cluster.read('admin', { getParameter: 1, featureCompatibilityVersion: 1 })
    const { version } = reply['featureCompatibilityVersion']
    const { version: release } = await cluster.read('admin', { buildInfo: 1 })
    return [{ name: 'featureCompatibilityVersion', value: { version }, release: String(release) }]
  } catch (error) {
    if (isUnknown(error)) return null
    throw error
  }
}

function commands({ ours, theirs }: Pair): Command[] {
  if (!ours) return []
  const version = String(ours.value['version'])
  // The command is for cluster1. Servers of 7.0 and later require `confirm`, and earlier ones reject it.
  const confirm = Number.parseInt(theirs?.release ?? version, 10) < 7 ? '' : ', confirm: true'
  const text = `db.adminCommand({ setFeatureCompatibilityVersion: ${shellText(version)}${confirm} })`
  return [{ text, review: 'is hard to undo, and the release may not support it' }]
}
