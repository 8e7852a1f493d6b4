import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import { isUserCollection } from '../domain/namespace.ts'
import { readChangeStream, type StreamPosition } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

/** What happened on a cluster in user collections between a position and now, in batches. */
export async function* eventsSince(
  cluster: Cluster,
  position: StreamPosition,
  context: RetryContext,
): AsyncGenerator<ChangeEvent[]> {
  const note = () => appendOplogNote(cluster, 'reverse')
  await retry('noting the present time', context, note)
  const now = cluster.latest
  // On a quiet cluster this is what the stream passes that time by.
  await retry('noting the present time', context, note)
  for await (const batch of readChangeStream(cluster, position, context)) {
    const events = batch.events
      .map(parseChangeEvent)
      .filter((event) => event.kind !== 'silent' && isUserCollection(event.collection))
    if (events.length > 0) yield events
    if (batch.position.time > now) return
  }
}
