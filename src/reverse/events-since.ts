import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import { isUserCollection } from '../domain/namespace.ts'
import { readChangeStream, type StreamPosition } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

/** Yields the events of user collections between a position and the time of the call, in batches. */
export async function* eventsSince(
  cluster: Cluster,
  position: StreamPosition,
  context: RetryContext,
): AsyncGenerator<ChangeEvent[]> {
  const appendNoOp = () => appendOplogNote(cluster, 'reverse')
  await retry('reading the current cluster time', context, appendNoOp)
  const now = cluster.latest
  // On a cluster without writes, this second no-op makes the stream pass that time.
  await retry('reading the current cluster time', context, appendNoOp)
  for await (const batch of readChangeStream(cluster, position, context)) {
    const events = batch.events
      .map(parseChangeEvent)
      .filter((event) => event.kind !== 'silent' && isUserCollection(event.collection))
    if (events.length > 0) yield events
    if (batch.position.time > now) return
  }
}
