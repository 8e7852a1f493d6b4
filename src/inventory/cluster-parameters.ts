import type { Document } from 'mongodb'
import { type InventoryCluster, isUnknown } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { shellValue } from './shell-text.ts'

/** Parameters of the whole cluster (6.0 and later), which `setClusterParameter` sets. */
export const clusterParameters: Kind = {
  name: 'cluster parameter',
  privilege: 'getClusterParameter on the cluster (in the role clusterManager)',
  read: readParameters,
  commands,
}

async function readParameters(cluster: InventoryCluster): Promise<Item[] | null> {
  try {
    const { clusterParameters: found } = await cluster.read('admin', { getClusterParameter: '*' })
    return (found as Document[]).map(({ _id: name, clusterParameterTime: _, ...value }) => ({ name, value }))
  } catch (error) {
    if (isUnknown(error)) return null
    throw error
  }
}

function commands({ how, ours }: Pair): Command[] {
  // The release of cluster0 does not have this parameter. The default of cluster1 is assumed to have the same effect, so no
  // command is printed.
  if (how === 'extra') return []
  const text = `db.adminCommand({ setClusterParameter: ${shellValue({ [ours.name]: ours.value })} })`
  return [how === 'missing' ? { text, review: 'the release of cluster1 does not have this parameter' } : { text }]
}
