import { BSON, type Document } from 'mongodb'
import { type ClusterTime, clusterTimeOfToken } from '../domain/cluster-time.ts'
import { assert } from '../domain/errors.ts'
import { internalDatabaseNames } from '../domain/namespace.ts'
import { findSpan } from '../domain/raw-bson.ts'
import { type Cluster, toTimestamp } from './cluster.ts'
import { code, codeOf, historyLost, TransientReplyError } from './errors.ts'
import { isIn, type PartitionFilter } from './partition-filter.ts'
import { type RawBatch, RawCursor } from './raw-cursor.ts'
import { type ReopeningLimits, Reopenings } from './reopenings.ts'
import { type RetryContext, retry } from './retry.ts'
import { toUuid } from './uuid.ts'

/** Where a stream starts or resumes: right after a token, or at a time, inclusive. */
export type StreamPosition =
  | { kind: 'token'; token: { _data: string }; time: ClusterTime }
  | { kind: 'time'; time: ClusterTime }

/** The position of an event. A stream that resumes there begins with the next event. */
export function positionOfEvent(event: Buffer): StreamPosition & { kind: 'token' } {
  const span = findSpan(event, '_id')
  assert(span, 'a change event has no _id')
  const token = BSON.deserialize(event.subarray(span.valueStart, span.valueEnd)) as { _data: string }
  return { kind: 'token', token, time: clusterTimeOfToken(token._data) }
}

/** Returns the earlier of two positions in the same stream. */
export function earlierPosition(one: StreamPosition, other: StreamPosition): StreamPosition {
  if (one.time !== other.time) return one.time < other.time ? one : other
  if (one.kind === 'time') return one
  if (other.kind === 'time') return other
  return one.token._data < other.token._data ? one : other
}

/**
 * True when a stream from `one` delivers every event that a stream from `other` delivers. Relies only on the order of
 * events by time: the order of two different tokens of the same time is unknown.
 */
export function isNotAfter(one: StreamPosition, other: StreamPosition): boolean {
  if (one.time !== other.time) return one.time < other.time
  if (one.kind === 'time') return true
  return other.kind === 'token' && one.token._data === other.token._data
}

export function isSamePosition(one: StreamPosition, other: StreamPosition): boolean {
  if (one.time !== other.time) return false
  if (one.kind === 'time') return other.kind === 'time'
  return other.kind === 'token' && one.token._data === other.token._data
}

export interface StreamBatch {
  events: Buffer[]
  /**
   * A stream that resumes here continues right after this batch. The position also advances without relevant events, so
   * that an idle stream never falls behind.
   */
  position: StreamPosition & { kind: 'token' }
}

/** The largest number of events in a batch. The server also ends a batch at 16 MB. */
export const eventsPerBatch = 5_000
/**
 * How long the server holds an empty getMore open (ms). The time is short, so that a reader stops soon after a request
 * and the position of an idle stream advances often.
 */
export const idleAwaitMS = 500
/** After this time the connection of a command is treated as broken. The await time of a getMore is much shorter. */
const answerLimitMS = 20_000
/** If no reply has contained a position for this long, the stream is reopened and the failure is reported. */
const withoutPositionMS = 30_000
/** Events omit larger documents, which are then read from the source, so that no event exceeds 16 MB. */
const inlineDocumentBytesMax = 256 * 1024

export interface StreamContent {
  /** Omit the documents of inserts and replacements, because the caller does not need their content. */
  identitiesOnly?: boolean
  /**
   * How long the server may hold an empty getMore open, in ms. The position advances only when the server answers.
   * Called for each getMore.
   */
  awaitMS?: () => number
  /** The condition for selected events, from `Selection`. Null for all events. */
  selected?: Document | null
  /** Limits document events to some partitions. The stream always includes definition events. */
  only?: PartitionedEvents
  /** The limits for reopening a stream that does not advance. */
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

/** The await time of a reader that waits for its position to pass a given time. */
export const shortAwaitMS = 30

/** An event without documentKey does not belong to a single document, so every partition gets it. */
function inPartitions({ whole, ...filter }: PartitionedEvents, before6: boolean): Document {
  const includesPartition0 = filter.partitions.includes(0)
  const byId = isIn(filter, '$documentKey._id')
  // Without expanded events there is no field with the UUID. A rename may send events to another partition, so the
  // collection is then converged (`IncompleteCollections`).
  const isWhole = before6
    ? { $in: ['$ns', whole.map(({ database, name }) => ({ db: { $literal: database }, coll: { $literal: name } }))] }
    : { $in: ['$collectionUUID', whole.map(({ uuid }) => toUuid(uuid))] }
  const isRequested = whole.length === 0 ? byId : { $cond: [isWhole, includesPartition0, byId] }
  return { $expr: { $or: [{ $eq: [{ $type: '$documentKey' }, 'missing'] }, isRequested] } }
}

function pipeline(
  position: StreamPosition,
  content: StreamContent,
  { before6, metadataDatabase }: Cluster,
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
    ...stagesAfterStream(content, before6, metadataDatabase),
  ]
}

/**
 * Returns the stages that select events and keep only the fields that `parseChangeEvent` reads.
 * @param ownDatabase the metadata database of this sync; its events are excluded, because they would be most of those
 * that arrive
 */
export function stagesAfterStream(
  { identitiesOnly = false, selected = null, only }: StreamContent,
  before6: boolean,
  ownDatabase?: string,
): Document[] {
  const isNamed = ownDatabase !== undefined && !internalDatabaseNames.includes(ownDatabase)
  const internal = isNamed ? [...internalDatabaseNames, ownDatabase] : internalDatabaseNames
  return [
    { $match: { 'ns.db': { $nin: internal } } },
    ...(selected ? [{ $match: selected }] : []),
    ...(only ? [{ $match: inPartitions(only, before6) }] : []),
    {
      $project: {
        operationType: 1,
        clusterTime: 1,
        collectionUUID: 1,
        ns: 1,
        to: 1,
        'operationDescription.reshardUUID': 1,
        'operationDescription.dropTarget': 1,
        'operationDescription.capped': 1,
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
 * Reads the cluster-wide change stream endlessly, as raw batches in the server's total order. After elections, broken
 * connections and killed cursors it reopens the stream right after the last batch that the caller received. Throws
 * FatalError OplogWindowLost when the position is no longer in the oplog, FatalError ChangeStreamStalled when the
 * stream was reopened for half an hour without advancing, and StoppedError when stopped.
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
            batchSize: eventsPerBatch,
            awaitMS: content.awaitMS?.() ?? idleAwaitMS,
            timeoutMS: answerLimitMS,
          })
          if (!raw) throw new TransientReplyError('the server ended the change stream')
          const reached = positionAfter(raw)
          withoutPosition = reached ? null : (withoutPosition ?? performance.now())
          if (withoutPosition !== null && performance.now() - withoutPosition > withoutPositionMS) {
            throw new TransientReplyError('the replies of the change stream have no postBatchResumeToken')
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
      // Tokens have moved backwards after a resume (NODE-7042). A restart from the older token would read events again.
      if (batch.position.time < position.time && batch.events.length === 0) continue
      position = batch.position
      yield batch
    }
  } finally {
    reopenings.end()
    // This is not awaited, because a commit ends three streams while users wait.
    cluster.endLater(discard())
  }

  async function open(): Promise<RawCursor> {
    await reopenings.opening()
    const command = {
      aggregate: 1,
      pipeline: pipeline(position, content, cluster),
      cursor: { batchSize: eventsPerBatch },
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
 * Returns the position after this reply, or null if the reply has none. A router omits `postBatchResumeToken` until
 * every shard has answered it. The cursor remains usable, and the returned events have their own tokens.
 */
function positionAfter({ documents, resumeToken }: RawBatch): StreamBatch['position'] | null {
  if (resumeToken) return { kind: 'token', token: resumeToken, time: clusterTimeOfToken(resumeToken._data) }
  const last = documents.at(-1)
  return last ? positionOfEvent(last) : null
}
