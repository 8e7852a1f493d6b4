import { BSON, type Document } from 'mongodb'
import { type ClusterTime, clusterTimeOfToken } from '../domain/cluster-time.ts'
import { assert } from '../domain/errors.ts'
import { internalDatabaseNames } from '../domain/namespace.ts'
import { findSpan } from '../domain/raw-bson.ts'
import { type Cluster, type RawBatch, RawCursor, toTimestamp } from './cluster.ts'
import { code, codeOf, historyLost, TransientReplyError } from './errors.ts'
import { isIn, type PartitionFilter } from './partition-filter.ts'
import { type ReopeningLimits, Reopenings } from './reopenings.ts'
import { type RetryContext, retry } from './retry.ts'
import { toUuid } from './uuid.ts'

/** Where a stream (re)starts: right after a token, or at a time, inclusive. */
export type StreamPosition =
  | { kind: 'token'; token: { _data: string }; time: ClusterTime }
  | { kind: 'time'; time: ClusterTime }

/** Where an event stands: a stream that resumes there begins with the one after it. */
export function positionOfEvent(event: Buffer): StreamPosition & { kind: 'token' } {
  const span = findSpan(event, '_id')
  assert(span, 'a change event without _id')
  const token = BSON.deserialize(event.subarray(span.valueStart, span.valueEnd)) as { _data: string }
  return { kind: 'token', token, time: clusterTimeOfToken(token._data) }
}

/** The earlier of two places in the same stream. */
export function earlierPosition(one: StreamPosition, other: StreamPosition): StreamPosition {
  if (one.time !== other.time) return one.time < other.time ? one : other
  if (one.kind === 'time') return one
  if (other.kind === 'time') return other
  return one.token._data < other.token._data ? one : other
}

export interface StreamBatch {
  events: Buffer[]
  /** Resumes right after this batch; also moves when nothing relevant happened, so an idle stream never falls behind. */
  position: StreamPosition & { kind: 'token' }
}

/** Events per getMore; the server also ends a batch at 16 MB. */
const batchSize = 5_000
/** How long the server holds an empty getMore open. Short, so that stopping and idle positions do not wait long. */
export const idleAwaitMS = 500
/** A getMore that takes this much longer than its await time sits on a dead connection. */
const answerLimitMS = 20_000
/** Answers that give no position for so long are no stream: it is opened again, and says so. */
const withoutPositionMS = 30_000
/** Larger documents are left out of the event (and read from the source instead), so that no event exceeds 16 MB. */
const inlineDocumentBytesMax = 256 * 1024

export interface StreamContent {
  /** Leave the documents of inserts and replacements out: only what changed is asked. */
  identitiesOnly?: boolean
  /** How long the server may hold an empty getMore open, ms: a position moves only when it answers. Asked each time. */
  awaitMS?: () => number
  /** Events of what is selected only, as `Selection` has it; null for all. */
  selected?: Document | null
  /** Document events of some partitions only; events of definitions come in any case. */
  only?: PartitionedEvents
  /** When a stream that is opened again and again without advancing is given up. */
  reopeningLimits?: ReopeningLimits
}

export interface PartitionedEvents extends PartitionFilter {
  /** Collections that belong to partition 0 as a whole. */
  whole: readonly WholeCollection[]
}

export interface WholeCollection {
  /** 16 bytes as latin1 text. */
  uuid: string
  database: string
  name: string
}

/** For a reader that waits for its position to pass a moment. */
export const hurriedAwaitMS = 30

/** What is not about one document (no documentKey) concerns every partition. */
function inPartitions({ whole, ...filter }: PartitionedEvents, before6: boolean): Document {
  const first = filter.partitions.includes(0)
  const byId = isIn(filter, '$documentKey._id')
  // Without expanded events a field tells no UUID, and no name ever changes: that would have been a failure.
  const isWhole = before6
    ? { $in: ['$ns', whole.map(({ database, name }) => ({ db: { $literal: database }, coll: { $literal: name } }))] }
    : { $in: ['$collectionUUID', whole.map(({ uuid }) => toUuid(uuid))] }
  const ours = whole.length === 0 ? byId : { $cond: [isWhole, first, byId] }
  return { $expr: { $or: [{ $eq: [{ $type: '$documentKey' }, 'missing'] }, ours] } }
}

function pipeline(
  position: StreamPosition,
  { identitiesOnly = false, selected = null, only }: StreamContent,
  before6: boolean,
): Document[] {
  return [
    {
      $changeStream: {
        allChangesForCluster: true,
        ...(before6 ? {} : { showExpandedEvents: true }),
        ...(position.kind === 'token'
          ? { resumeAfter: position.token }
          : { startAtOperationTime: toTimestamp(position.time) }),
      },
    },
    { $match: { 'ns.db': { $nin: internalDatabaseNames } } },
    ...(selected ? [{ $match: selected }] : []),
    ...(only ? [{ $match: inPartitions(only, before6) }] : []),
    {
      $project: {
        operationType: 1,
        clusterTime: 1,
        collectionUUID: 1,
        ns: 1,
        to: 1,
        documentKey: 1,
        ...(identitiesOnly ? {} : { fullDocument: smallDocument }),
      },
    },
  ]
}

const smallDocument = {
  $cond: [{ $lte: [{ $bsonSize: '$fullDocument' }, inlineDocumentBytesMax] }, '$fullDocument', '$$REMOVE'],
}

/**
 * The cluster-wide change stream as raw batches, in the server's total order, without end. Reopens by itself after
 * elections, cut connections and killed cursors, right after the last batch that was taken. Throws FatalError
 * OplogWindowLost when the position is gone from the oplog, ChangeStreamStalled when it is opened for half an hour without
 * advancing, StoppedError when stopped.
 */
export async function* readChangeStream(
  cluster: Cluster,
  start: StreamPosition,
  context: RetryContext,
  content: StreamContent = {},
): AsyncGenerator<StreamBatch> {
  let position = start
  let cursor: RawCursor | null = null
  let withoutPosition: number | null = null
  const reopenings = new Reopenings(context, content.reopeningLimits)
  try {
    for (;;) {
      const batch: StreamBatch | null = await retry('reading the change stream', context, async () => {
        try {
          cursor ??= await open()
          const raw = await cursor.next({
            batchSize,
            awaitMS: content.awaitMS?.() ?? idleAwaitMS,
            timeoutMS: answerLimitMS,
          })
          if (!raw) throw new TransientReplyError('the server ended the change stream')
          const reached = positionAfter(raw)
          withoutPosition = reached ? null : (withoutPosition ?? performance.now())
          if (withoutPosition !== null && performance.now() - withoutPosition > withoutPositionMS) {
            throw new TransientReplyError('the answers of the change stream have no postBatchResumeToken')
          }
          return reached && { events: raw.documents, position: reached }
        } catch (error) {
          reopenings.lost(error)
          withoutPosition = null
          await discard()
          throw codeOf(error) === code.cappedPositionLost ? historyLost(error) : error
        }
      })
      if (!batch) continue
      if (batch.events.length > 0 || batch.position.time > position.time) reopenings.advanced()
      // Tokens have gone backwards after a resume (NODE-7042); an older one would make a later restart lose its place.
      if (batch.position.time < position.time && batch.events.length === 0) continue
      position = batch.position
      yield batch
    }
  } finally {
    reopenings.end()
    await discard()
  }

  async function open(): Promise<RawCursor> {
    await reopenings.opening()
    const command = {
      aggregate: 1,
      pipeline: pipeline(position, content, cluster.before6),
      cursor: { batchSize },
      readConcern: { level: 'majority' },
    }
    const opened = await RawCursor.open(cluster, 'admin', command, answerLimitMS)
    reopenings.opened()
    return opened
  }

  async function discard(): Promise<void> {
    const old = cursor
    cursor = null
    await old?.close()
  }
}

/**
 * Where the stream resumes after this answer; null when the answer does not say. A router leaves `postBatchResumeToken` out while
 * it has heard nothing from a shard yet: the cursor is as good as before, and the events given have tokens of their own.
 */
function positionAfter({ documents, resumeToken }: RawBatch): StreamBatch['position'] | null {
  if (resumeToken) return { kind: 'token', token: resumeToken, time: clusterTimeOfToken(resumeToken._data) }
  const last = documents.at(-1)
  return last ? positionOfEvent(last) : null
}
