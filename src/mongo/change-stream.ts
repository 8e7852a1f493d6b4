import type { Document } from 'mongodb'
import { type ClusterTime, clusterTimeOfToken } from '../domain/cluster-time.ts'
import { internalDatabaseNames } from '../domain/namespace.ts'
import { type Cluster, RawCursor, toTimestamp } from './cluster.ts'
import { code, codeOf, historyLost } from './errors.ts'
import { type RetryContext, retry } from './retry.ts'

/** Where a stream (re)starts: right after a token, or at a time, inclusive. */
export type StreamPosition =
  | { kind: 'token'; token: { _data: string }; time: ClusterTime }
  | { kind: 'time'; time: ClusterTime }

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
/** Larger documents are left out of the event (and read from the source instead), so that no event exceeds 16 MB. */
const inlineDocumentBytesMax = 256 * 1024

export interface StreamContent {
  /** Leave the documents of inserts and replacements out: only what changed is asked. */
  identitiesOnly?: boolean
  /** How long the server may hold an empty getMore open, ms: a position moves only when it answers. Asked each time. */
  awaitMS?: () => number
}

/** For a reader that waits for its position to pass a moment. */
export const hurriedAwaitMS = 30

function pipeline(position: StreamPosition, { identitiesOnly = false }: StreamContent): Document[] {
  return [
    {
      $changeStream: {
        allChangesForCluster: true,
        showExpandedEvents: true,
        ...(position.kind === 'token'
          ? { resumeAfter: position.token }
          : { startAtOperationTime: toTimestamp(position.time) }),
      },
    },
    { $match: { 'ns.db': { $nin: internalDatabaseNames } } },
    {
      $project: {
        operationType: 1,
        clusterTime: 1,
        collectionUUID: 1,
        ns: 1,
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
 * OplogWindowLost when the position is gone from the oplog, StoppedError when stopped.
 */
export async function* readChangeStream(
  cluster: Cluster,
  start: StreamPosition,
  context: RetryContext,
  content: StreamContent = {},
): AsyncGenerator<StreamBatch> {
  let position = start
  let cursor: RawCursor | null = null
  try {
    for (;;) {
      const batch: StreamBatch | null = await retry('reading the change stream', context, async () => {
        try {
          cursor ??= await RawCursor.open(
            cluster,
            'admin',
            {
              aggregate: 1,
              pipeline: pipeline(position, content),
              cursor: { batchSize },
              readConcern: { level: 'majority' },
            },
            answerLimitMS,
          )
          const raw = await cursor.next({
            batchSize,
            awaitMS: content.awaitMS?.() ?? idleAwaitMS,
            timeoutMS: answerLimitMS,
          })
          if (!raw?.resumeToken) {
            await discard()
            return null
          }
          const time = clusterTimeOfToken(raw.resumeToken._data)
          return { events: raw.documents, position: { kind: 'token' as const, token: raw.resumeToken, time } }
        } catch (error) {
          await discard()
          throw codeOf(error) === code.cappedPositionLost ? historyLost(error) : error
        }
      })
      if (!batch) continue
      // Tokens have gone backwards after a resume (NODE-7042); an older one would make a later restart lose its place.
      if (batch.position.time < position.time && batch.events.length === 0) continue
      position = batch.position
      yield batch
    }
  } finally {
    await discard()
  }

  async function discard(): Promise<void> {
    const old = cursor
    cursor = null
    await old?.close()
  }
}
