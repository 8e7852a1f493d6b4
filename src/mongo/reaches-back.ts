import { FatalError } from '../domain/errors.ts'
import { earlierPosition, readChangeStream, type StreamPosition } from './change-stream.ts'
import type { Cluster } from './cluster.ts'
import type { Metadata } from './metadata.ts'
import { appendOplogNote } from './oplog-note.ts'
import { type RetryContext, retry } from './retry.ts'

/**
 * Returns false if the cluster's oplog no longer reaches back to the position. Opens the change stream there, because the
 * server then searches its oplog for the position. Rejects with StoppedError when stopped before the cluster answers.
 *
 * A router opens the streams of the shards without reading their oplogs, so its first reply may be empty and proves
 * nothing. The position of the router's stream is the earliest of all shards. Once it is later than `position`, every
 * shard has read its oplog from there. The no-op gives a shard without writes an entry to read.
 */
async function reachesBack(cluster: Cluster, position: StreamPosition, context: RetryContext): Promise<boolean> {
  try {
    if (cluster.sharded) await retry('writing an oplog no-op', context, () => appendOplogNote(cluster, 'oplog window'))
    for await (const batch of readChangeStream(cluster, position, context, { identitiesOnly: true })) {
      if (!cluster.sharded || batch.position.time > position.time) return true
    }
  } catch (error) {
    if (error instanceof FatalError && error.failure === 'OplogWindowLost') return false
    throw error
  }
  return true
}

/**
 * Returns false if the source's oplog no longer reaches back to the earliest stored position of the partitions. Returns
 * true if no position is stored.
 */
export async function reachesStoredPositions(
  source: Cluster,
  metadata: Metadata,
  context: RetryContext,
): Promise<boolean> {
  const positions: StreamPosition[] = [...(await metadata.loadPartitions()).values()]
  return positions.length === 0 || (await reachesBack(source, positions.reduce(earlierPosition), context))
}
