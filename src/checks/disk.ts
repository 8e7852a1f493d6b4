import type { Document } from 'mongodb'
import { listDatabases } from '../definitions/listing.ts'
import { type Check, ifAllowed } from './check.ts'

/**
 * Compares the size of the source with the free space of the destination. This is an estimate: compression differs,
 * and the oplog takes its share.
 */
export const checkDisk: Check = async ({ source, destination }) => {
  let needed = 0
  for (const database of await listDatabases(source)) {
    const stats = await ifAllowed(source.read(database, { dbStats: 1 }))
    if (!stats) return []
    needed += Number(stats['storageSize'] ?? 0) + Number(stats['indexSize'] ?? 0)
  }
  const free = freeOf(await ifAllowed(destination.read('admin', { dbStats: 1 })))
  if (free === null || needed < free) return []
  return [
    {
      severity: 'warning',
      name: 'LittleDiskSpace',
      message: `the source takes ${inGB(needed)} GB on disk, and the destination has ${inGB(free)} GB left`,
      remedy: 'give the destination more space; besides the data it writes its oplog',
    },
  ]
}

/** Free bytes of one server, or the sum of all shards of a sharded cluster; null if unknown. */
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
