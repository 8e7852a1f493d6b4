import { listDatabases } from '../definitions/listing.ts'
import type { Finding } from '../domain/finding.ts'
import { oplogWindowMinSeconds } from '../domain/oplog-time.ts'
import { oplogWindowOf, shardOplogWindows } from '../mongo/oplog-window.ts'
import { type Check, type CheckedClusters, ifAllowed } from './check.ts'
import { shardsNotReadable } from './shards-not-readable.ts'

/** Bytes copied per second on modest machines. The figure is an estimate for this comparison, not a guarantee. */
const copiedPerSecond = 20_000_000

/**
 * Compares the window of the source's oplog (on a sharded cluster, the shortest one of all shards) with twice the
 * estimated duration of a copy, and with a minimum. tandem applies events during the copy, but it may fall behind. Also
 * reports shards whose oplogs the sync could not observe.
 */
export const checkOplogWindow: Check = async (clusters) => {
  const { source, facts } = clusters
  if (facts.source.topology === 'replicaSet') {
    const seconds = await ifAllowed(oplogWindowOf(source))
    return seconds === null ? [] : await shortWindow(clusters, 'the oplog of the source', seconds)
  }
  if (facts.source.topology !== 'sharded') return []
  const answers = await ifAllowed(shardOplogWindows(source))
  const findings = shardsNotReadable('source', answers)
  const windows = (answers ?? []).flatMap((answer) => ('result' in answer ? [answer] : []))
  const [shortest] = windows.sort((one, other) => one.result - other.result)
  if (!shortest) return findings
  const where = `the oplog of the shard ${shortest.shard} of the source`
  return [...(await shortWindow(clusters, where, shortest.result)), ...findings]
}

async function shortWindow({ source, selection }: CheckedClusters, where: string, seconds: number): Promise<Finding[]> {
  let bytes = 0
  for (const database of await selection.databases(await listDatabases(source))) {
    bytes += Number((await ifAllowed(source.read(database, { dbStats: 1 })))?.['dataSize'] ?? 0)
  }
  const ofCopy = 2 * Math.ceil(bytes / copiedPerSecond)
  const needed = Math.max(oplogWindowMinSeconds, ofCopy)
  if (seconds >= needed) return []
  const why =
    ofCopy > oplogWindowMinSeconds
      ? `a copy of this size needs ${inHours(needed)} hours`
      : `at least ${inHours(needed)} hour is recommended for any sync`
  return [
    {
      severity: 'warning',
      name: 'ShortOplogWindow',
      message: `${where} reaches back about ${inHours(seconds)} hours at its current rate; ${why}`,
      remedy: 'enlarge the oplog (replSetResizeOplog), and do not pause for long',
    },
  ]
}

function inHours(seconds: number): string {
  return (seconds / 3_600).toFixed(1)
}
