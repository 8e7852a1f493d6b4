import type { DocumentWriter } from '../apply/write-identities.ts'
import type { Catalogue, CatalogueEntry } from '../domain/catalogue.ts'
import { parseChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { traitsOf } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { hurriedAwaitMS, readChangeStream } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { appendNote } from '../mongo/listing.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { renderId } from '../mongo/verification-store.ts'

export interface LateChangesParts {
  source: Cluster
  selection: Selection
  catalogue: Catalogue
  writer: DocumentWriter
  context: RetryContext
}

export interface Quiet {
  until: ClusterTime
  expired: number
}

/**
 * Looks at everything the source did to what is synced after the commit point. Where its writes are not blocked the TTL monitor goes on
 * deleting (on 6.0.27 it rests while they are): such deletes are applied. Anything else would be lost by handing over,
 * so it is a failure that names the first of it. Returns the time up to which the source is known to be quiet (call
 * again with that), and how many documents expired.
 */
export async function applyLateDeletes(parts: LateChangesParts, since: ClusterTime): Promise<Quiet> {
  const { source, context } = parts
  await retry('looking for late writes', context, () => appendNote(source, 'quiet'))
  const until = source.latest
  await retry('looking for late writes', context, () => appendNote(source, 'after quiet'))
  let expired = 0
  const content = { identitiesOnly: true, selected: parts.selection.events, awaitMS: () => hurriedAwaitMS }
  const stream = readChangeStream(source, { kind: 'time', time: since }, context, content)
  for await (const batch of stream) {
    const gone = new Map<CatalogueEntry, Buffer[]>()
    for (const bytes of batch.events) {
      const event = parseChangeEvent(bytes)
      if (event.time <= since || !isUserCollection(event.collection)) continue
      const entry = parts.catalogue.get(event.uuid)
      const expires = entry?.wanted.indexes.some((index) => traitsOf(index).expireAfterSeconds !== undefined)
      if (!entry || !expires || event.kind !== 'delete' || !event.idElement) throw late(event)
      expired += 1
      const known = gone.get(entry)
      if (known) known.push(event.idElement)
      else gone.set(entry, [event.idElement])
    }
    for (const [entry, ids] of gone) {
      await retry('applying what expired', context, () => parts.writer.delete(entry, ids))
    }
    // Beyond it, not at it: one time may be shared by many events.
    if (batch.position.time > until) break
  }
  return { until, expired }
}

function late({ operationType, database, collection, idElement }: ReturnType<typeof parseChangeEvent>): FatalError {
  const where = collection ? namespace(database, collection) : database
  const what = idElement ? `${where}, _id ${JSON.stringify(renderId(idElement))}` : where
  return new FatalError(
    'SourceWritten',
    `the source was written after the commit point (${operationType} on ${what}). Stop all writes on the source, or start ` +
      'with enableUserWriteBlocking "sourceAndDestination"; then send resume, which commits anew with what was written.',
  )
}
