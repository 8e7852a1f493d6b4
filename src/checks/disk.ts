import type { Document } from 'mongodb'
import { readExisting } from '../definitions/existing-fate.ts'
import { type ListedCollection, listDatabases } from '../definitions/listing.ts'
import { inParallel } from '../domain/in-parallel.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { diskBytesOf } from '../mongo/sample.ts'
import { type Check, type CheckedClusters, ifAllowed } from './check.ts'

/** Maximum number of collections whose sizes are read in parallel. */
const sizesAtOnce = 16

/**
 * Compares the size of the data that the destination does not have yet with its free disk space. This is an estimate:
 * the whole database counts even if the filters select only a part of it, compression differs, and the oplog needs
 * space too.
 */
export const checkDisk: Check = async (clusters) => {
  const { configuration, source, destination, selection } = clusters
  let wanted = 0
  for (const database of await selection.databases(await listDatabases(source))) {
    const stats = await ifAllowed(source.read(database, { dbStats: 1 }))
    if (!stats) return []
    wanted += Number(stats['storageSize'] ?? 0) + Number(stats['indexSize'] ?? 0)
  }
  const free = freeOf(await ifAllowed(destination.read('admin', { dbStats: 1 })))
  if (free === null || wanted <= free) return []
  const converges = configuration.existingData === 'converge'
  const added = wanted - (converges ? await presentBytes(clusters) : 0)
  if (added <= free) return []
  const what = converges
    ? `the source takes ${inGB(added)} GB more on disk than the collections that the destination keeps`
    : `the source takes ${inGB(added)} GB on disk`
  return [
    {
      severity: 'warning',
      name: 'LittleDiskSpace',
      message: `${what}, and the destination has ${inGB(free)} GB left`,
      remedy: 'give the destination more space: it also stores its oplog',
    },
  ]
}

/**
 * Returns how many of the source's bytes the destination already has on disk, in collections that are made equal in
 * place. It does not count collections that are dropped and copied, or whose size this user may not read.
 */
async function presentBytes({ configuration, source, destination, selection }: CheckedClusters): Promise<number> {
  const shardingEntries = configuration.sharding?.shardingEntries ?? []
  let bytes = 0
  for (const database of await selection.databases(await listDatabases(destination))) {
    const { existing } = await readExisting(source, destination, selection, database, shardingEntries)
    const kept = existing.filter(({ fate, existing: { type } }) => fate === 'converged' && type === 'collection')
    await inParallel(sizesAtOnce, kept, async ({ existing: found, wanted }) => {
      const sizeOn = async (cluster: Cluster, one: ListedCollection | null): Promise<number> =>
        (one && (await ifAllowed(diskBytesOf(cluster, { database, name: one.name, uuid: one.uuid })))) ?? 0
      const [needed, present] = await Promise.all([sizeOn(source, wanted), sizeOn(destination, found)])
      bytes += Math.min(needed, present)
    })
  }
  return bytes
}

/** Returns the free bytes of a server, or their sum over all shards of a sharded cluster; null if unknown. */
function freeOf(stats: Document | null): number | null {
  const each = stats?.['raw'] ? Object.values(stats['raw'] as Record<string, Document>) : stats ? [stats] : []
  let free: number | null = null
  for (const { fsTotalSize, fsUsedSize } of each) {
    if (typeof fsTotalSize === 'number' && typeof fsUsedSize === 'number') free = (free ?? 0) + fsTotalSize - fsUsedSize
  }
  return free
}

function inGB(bytes: number): string {
  return (bytes / 1_000_000_000).toFixed(1)
}
