import { listDatabases } from '../definitions/listing.ts'
import { oplogWindowMinSeconds } from '../domain/oplog-time.ts'
import { oplogWindowOf } from '../mongo/oplog-window.ts'
import { type Check, ifAllowed } from './check.ts'

/** Bytes copied per second on modest machines. The figure is an estimate for this comparison, not a guarantee. */
const copiedPerSecond = 20_000_000

/**
 * Compares the window of the source's oplog with the estimated duration of a copy. tandem applies events during the
 * copy, but it may fall behind.
 */
export const checkOplogWindow: Check = async ({ source, selection, facts }) => {
  // A router does not expose the oplogs of the shards.
  if (facts.source.topology !== 'replicaSet') return []
  const seconds = await ifAllowed(oplogWindowOf(source))
  if (seconds === null) return []
  let bytes = 0
  for (const database of await selection.databases(await listDatabases(source))) {
    bytes += Number((await ifAllowed(source.read(database, { dbStats: 1 })))?.['dataSize'] ?? 0)
  }
  const needed = Math.max(oplogWindowMinSeconds, 2 * Math.ceil(bytes / copiedPerSecond))
  if (seconds >= needed) return []
  return [
    {
      severity: 'warning',
      name: 'ShortOplogWindow',
      message: `the oplog of the source reaches back about ${inHours(seconds)} hours at its current rate; a copy of this size needs ${inHours(needed)}`,
      remedy: 'enlarge the oplog (replSetResizeOplog), and do not pause for long',
    },
  ]
}

function inHours(seconds: number): string {
  return (seconds / 3_600).toFixed(1)
}
