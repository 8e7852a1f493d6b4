import type { Catalog } from '../domain/catalog.ts'
import { parseChangeEvent } from '../domain/change-event.ts'
import { type ClusterTime, earlierOf } from '../domain/cluster-time.ts'
import { FatalError } from '../domain/errors.ts'
import { readChangeStream, shortAwaitMS } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

export interface RenamedCollectionsParts {
  source: Cluster
  catalog: Catalog
  metadata: Metadata
  context: RetryContext
}

/**
 * Reads which collections of the source were renamed between the earliest stored position and `until`. Returns their
 * UUIDs, or 'lost' when the oplog does not reach back to that position. The rename event of a source older than 6.0 has
 * no UUID, so all collections of the catalog in its database count as renamed.
 */
export async function renamedCollections(
  { source, catalog, metadata, context }: RenamedCollectionsParts,
  until: ClusterTime,
): Promise<ReadonlySet<string> | 'lost'> {
  const renamed = new Set<string>()
  const times = [...(await metadata.loadPartitions()).values()].map(({ time }) => time)
  if (times.length === 0) return renamed
  // This no-op makes the stream pass `until`.
  await retry('searching for renames', context, () => appendOplogNote(source, 'after renames'))
  const content = { identitiesOnly: true, selected: { operationType: 'rename' }, awaitMS: () => shortAwaitMS }
  const start = { kind: 'time', time: times.reduce(earlierOf) } as const
  try {
    for await (const batch of readChangeStream(source, start, context, content)) {
      for (const { uuid, database, to } of batch.events.map(parseChangeEvent)) {
        if (uuid !== '') renamed.add(uuid)
        else for (const entry of catalog.inDatabase(to?.database ?? database)) renamed.add(entry.uuid)
      }
      // A position at `until` is not enough, because many events may share that time.
      if (batch.position.time > until) break
    }
  } catch (error) {
    if (error instanceof FatalError && error.failure === 'OplogWindowLost') return 'lost'
    throw error
  }
  return renamed
}
