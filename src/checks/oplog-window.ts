import { listDatabases } from '../definitions/listing.ts'
import { oplogWindowMinSeconds } from '../domain/oplog-time.ts'
import { oplogWindowOf } from '../mongo/oplog-window.ts'
import { type Check, ifAllowed } from './check.ts'

/** Bytes that are copied in a second on modest machines: what a short window is measured by, no promise. */
const copiedPerSecond = 20_000_000

/** How far the source's oplog reaches back, against what a copy is estimated to take. Events are applied meanwhile, but may fall behind. */
export const checkOplogWindow: Check = async ({ source, facts }) => {
  // A router does not show the shards' oplogs.
  if (facts.source.topology !== 'replicaSet') return []
  const seconds = await ifAllowed(oplogWindowOf(source))
  if (seconds === null) return []
  let bytes = 0
  for (const database of await listDatabases(source)) {
    bytes += Number((await ifAllowed(source.read(database, { dbStats: 1 })))?.['dataSize'] ?? 0)
  }
  const needed = Math.max(oplogWindowMinSeconds, 2 * Math.ceil(bytes / copiedPerSecond))
  if (seconds >= needed) return []
  return [
    {
      severity: 'warning',
      name: 'ShortOplogWindow',
      message: `the oplog of the source reaches back about ${inHours(seconds)} hours at its present rate; a copy of this size asks for ${inHours(needed)}`,
      remedy: 'make the oplog larger (replSetResizeOplog), and do not pause for long',
    },
  ]
}

function inHours(seconds: number): string {
  return (seconds / 3_600).toFixed(1)
}
