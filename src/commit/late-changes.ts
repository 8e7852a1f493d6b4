import { listCollections } from '../definitions/listing.ts'
import type { DocumentWriter } from '../documents/write-identities.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import type { LateWrites } from '../domain/commit-request.ts'
import { FatalError } from '../domain/errors.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { isTimeSeries } from '../domain/namespace-filter.ts'
import { notLost } from '../domain/not-lost.ts'
import { readChangeStream, shortAwaitMS } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { describeId } from '../mongo/verification-store.ts'
import { expiresDocuments, notExpired } from './expiry.ts'

export interface LateChangesParts {
  source: Cluster
  destination: Cluster
  selection: Selection
  catalog: Catalog
  writer: DocumentWriter
  context: RetryContext
}

export interface Quiet {
  /**
   * Up to this time, the source has no changes after the commit timestamp other than deletes of documents that had
   * expired.
   */
  until: ClusterTime
  /** Number of documents that expired on the source and were deleted on the destination. */
  expired: number
}

/** Maximum number of late writes that are described one by one. */
const namedMax = 10

/**
 * Reads all changes of synced collections on the source after `since`. When writes are not blocked, the TTL monitor
 * continues to delete documents (on 6.0.27 it pauses while they are blocked), so deletes of documents that had expired
 * are applied. The cutover would lose any other change. If there is one, the function throws FatalError SourceWritten,
 * which names one such change. Returns the time up to which the source has no other changes (pass it to the next call)
 * and the number of applied deletes.
 */
export async function applyLateDeletes(parts: LateChangesParts, since: ClusterTime): Promise<Quiet> {
  const { context } = parts
  let expired = 0
  const until = await readSince(parts, since, async (events) => {
    const { others, expiring } = splitByExpiry(parts, events)
    if (others[0]) throw late(describe(others[0]))
    for (const gone of expiring) {
      const [deleted] = await deletedByUsers(parts, gone)
      if (deleted) throw late(deleted)
    }
    for (const { entry, ids } of expiring) {
      expired += ids.length
      await retry('deleting documents that expired on the source', context, () => parts.writer.delete(entry, ids))
    }
  })
  return { until, expired }
}

/**
 * Finds source writes that no check before the commit decision covered. Runs after the destination is unblocked. These
 * writes are on the source only, so their number and the first of them are reported to the operator. Deletes of
 * documents that had expired are left out, because these documents expire on the destination, too. If a user of the
 * destination has changed the date of such a document by then, its delete is reported.
 */
export async function findLateWrites(parts: LateChangesParts, since: ClusterTime): Promise<LateWrites> {
  const found: LateWrites = { total: 0, first: [] }
  const add = (text: string): void => {
    found.total += 1
    if (found.first.length < namedMax) found.first.push(text)
  }
  await readSince(parts, since, async (events) => {
    const { others, expiring } = splitByExpiry(parts, events)
    for (const event of others) add(describe(event))
    for (const gone of expiring) for (const text of await deletedByUsers(parts, gone)) add(text)
  })
  return found
}

/** The deletes in one collection, whose documents can expire. */
interface Deletes {
  entry: CatalogEntry
  /** `_id` elements. */
  ids: Buffer[]
  /** The time of the last of these deletes. */
  time: ClusterTime
}

function splitByExpiry(
  { catalog }: LateChangesParts,
  events: ChangeEvent[],
): { others: ChangeEvent[]; expiring: Deletes[] } {
  const others: ChangeEvent[] = []
  const expiring = new Map<CatalogEntry, Deletes>()
  for (const event of events) {
    const entry = catalog.get(event.uuid)
    if (entry && event.kind === 'delete' && event.idElement && expiresDocuments(entry.wanted)) {
      const known = expiring.get(entry) ?? { entry, ids: [], time: event.time }
      known.ids.push(event.idElement)
      known.time = laterOf(known.time, event.time)
      expiring.set(entry, known)
    } else others.push(event)
  }
  return { others, expiring: [...expiring.values()] }
}

/** Describes the deletes of documents that could not have expired. */
async function deletedByUsers(
  { destination, context }: LateChangesParts,
  { entry, ids, time }: Deletes,
): Promise<string[]> {
  const found = await retry('checking for late writes', context, () => notExpired(destination, entry, ids, time))
  return found.map((id) => `delete on ${namespace(entry.database, entry.sourceName)}, _id ${describeId(id)}`)
}

/**
 * Passes the changes after `since` to `take`, batch by batch, up to the newest time that the source has reported once
 * an oplog no-op of this call is written. Returns that time. Changes that tandem does not apply are left out. The last
 * batch may contain later changes.
 */
async function readSince(
  parts: LateChangesParts,
  since: ClusterTime,
  take: (events: ChangeEvent[]) => Promise<void>,
): Promise<ClusterTime> {
  const { source, context } = parts
  await retry('checking the source for late writes', context, () => appendOplogNote(source, 'quiet'))
  const until = source.latest
  // This second no-op makes the stream pass `until`. It is not awaited yet, so that the stream opens in parallel.
  const after = retry('checking the source for late writes', context, () => appendOplogNote(source, 'after quiet'))
  after.catch(() => {}) // awaited below
  const content = { identitiesOnly: true, selected: parts.selection.events, awaitMS: () => shortAwaitMS }
  const stream = readChangeStream(source, { kind: 'time', time: since }, context, content)
  for await (const batch of stream) {
    const events = batch.events
      .map(parseChangeEvent)
      .filter(({ kind, time, collection }) => time > since && kind !== 'silent' && isUserCollection(collection))
    const counted = await withoutSkipped(parts, events)
    if (counted.length > 0) await take(counted)
    // The position must be later than `until`, because many events may share that time.
    if (batch.position.time > until) break
  }
  await after
  return until
}

/**
 * Leaves out events of created and dropped time-series collections if the sync skips them. Like the events of views,
 * these events have no UUID and do not say what was created or dropped. An event is left out if neither cluster has a
 * synced collection or view of that name: then nothing that is synced was dropped or is missing.
 */
async function withoutSkipped(parts: LateChangesParts, events: ChangeEvent[]): Promise<ChangeEvent[]> {
  const { source, destination, selection, context } = parts
  if (!selection.skipsTimeSeries) return events
  const counted: ChangeEvent[] = []
  for (const event of events) {
    const { operationType, uuid, database, collection } = event
    const list = (cluster: Cluster) =>
      retry('checking for late writes', context, () => listCollections(cluster, database, collection))
    const mayBeSkipped = uuid === '' && (operationType === 'create' || operationType === 'drop')
    const listed = mayBeSkipped && [...(await list(source)), ...(await list(destination))]
    if (!listed || listed.some((one) => !isTimeSeries(one))) counted.push(event)
  }
  return counted
}

function describe({ operationType, database, collection, idElement }: ChangeEvent): string {
  const where = collection ? namespace(database, collection) : database
  return `${operationType} on ${idElement ? `${where}, _id ${describeId(idElement)}` : where}`
}

function late(write: string): FatalError {
  return new FatalError(
    'SourceWritten',
    `checking for late writes: the source was written to after the commit timestamp (${write}). Stop all writes on ` +
      'the source, then send resume, which commits again and includes that write. With enableUserWriteBlocking ' +
      `"sourceAndDestination" tandem blocks such writes. ${notLost.progress}`,
  )
}
