import type { ClusterTime } from '../domain/cluster-time.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Side } from './rechecks.ts'

export interface CatchUpParts {
  clusters: BothClusters
  context: RetryContext
  /** The time up to which the stream of a cluster is read. */
  readTime: (side: Side) => ClusterTime
  /** True while the streams pause because too many rechecks are open, and some of these wait for changes to be applied. */
  isBlocked: () => boolean
  pause: () => Promise<void>
}

/**
 * Waits until the streams of both clusters have passed the current time. Resolves with true when they have, and with
 * false as soon as `isBlocked` is true, because only the caller can get the changes applied for which rechecks wait.
 */
export async function catchUp({ clusters, context, readTime, isBlocked, pause }: CatchUpParts): Promise<boolean> {
  const targetOf = async (side: Side): Promise<[Side, ClusterTime]> => {
    const cluster = clusters[side]
    await retry('verifying', context, () => appendOplogNote(cluster, 'verdict'))
    const target = cluster.latest
    await retry('verifying', context, () => appendOplogNote(cluster, 'after verdict'))
    return [side, target]
  }
  for (const [side, target] of await Promise.all([targetOf('source'), targetOf('destination')])) {
    // The stream must have passed the target, because many events may share one time. The second no-op has a later time,
    // so the stream passes the target even if nothing else is written.
    while (readTime(side) <= target) {
      if (isBlocked()) return false
      await pause()
    }
  }
  return true
}
