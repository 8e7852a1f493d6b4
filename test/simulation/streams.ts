import type { Document, Timestamp } from 'mongodb'
import type { EventLog, Logged } from './event-log.ts'

/** A change stream cursor on one cluster: its position and the filter that the server applies. */
export interface StreamCursor {
  log: EventLog
  at: number
  /** The partitions whose document events the cursor returns; null for all. */
  partitions: Uint8Array | null
  identitiesOnly: boolean
  /** Called once, when there is an event for the cursor or its waiting time has expired. */
  awaiting: (() => void) | null
}

const eventsMax = 1_000

export function openStream(log: EventLog, pipeline: Document[]): StreamCursor {
  const [{ $changeStream: stream }, ...stages] = pipeline as [Document, ...Document[]]
  const project = stages.at(-1)?.['$project'] as Document
  const token = stream['resumeAfter']?._data as string | undefined
  return {
    log,
    at: token === undefined ? log.from(stream['startAtOperationTime'] as Timestamp) : log.after(token),
    partitions: partitionsOf(stages),
    identitiesOnly: project['fullDocument'] === undefined,
    awaiting: null,
  }
}

/** Extracts the filter by partitions from the pipeline that the product sends. */
function partitionsOf(stages: Document[]): Uint8Array | null {
  for (const { $match: match } of stages) {
    const alternatives = match?.['$expr']?.$or as Document[] | undefined
    const given = alternatives?.[1]?.['$in'] as [Document, number[]] | undefined
    if (!given) continue
    const count = given[0]['$abs'].$mod[1] as number
    const wanted = new Uint8Array(count)
    for (const partition of given[1]) wanted[partition] = 1
    return wanted
  }
  return null
}

function isFor(cursor: StreamCursor, event: Logged): boolean {
  return cursor.partitions === null || event.document < 0 || cursor.partitions[cursor.log.partitionOf(event)] === 1
}

/** Skips events that the cursor does not return. Returns whether there is one that it returns. */
export function hasMore(cursor: StreamCursor): boolean {
  const { events } = cursor.log
  while (cursor.at < events.length && !isFor(cursor, events[cursor.at] as Logged)) cursor.at += 1
  return cursor.at < events.length
}

/** Returns the next batch, possibly empty, and the token that resumes right after it. */
export function nextBatch(cursor: StreamCursor): { events: Buffer[]; token: string } {
  const { log } = cursor
  const events: Buffer[] = []
  let last = -1
  while (events.length < eventsMax && hasMore(cursor)) {
    last = cursor.at++
    events.push(log.encode(last, cursor.identitiesOnly))
  }
  return { events, token: hasMore(cursor) ? log.tokenOf(last) : log.frontierToken }
}
