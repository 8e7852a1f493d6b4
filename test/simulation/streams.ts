import type { Document, Timestamp } from 'mongodb'
import type { EventLog, Logged } from './event-log.ts'

/** A reader of one cluster's change stream: where it is and what the server keeps from it. */
export interface StreamCursor {
  log: EventLog
  at: number
  /** The partitions whose document events it gets; null for all. */
  partitions: Uint8Array | null
  identitiesOnly: boolean
  /** Called once, when there is something for it or it has waited long enough. */
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

/** Takes the filter by partitions out of the pipeline that the product sends. */
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

/** Moves past what is not for this reader; true when something is. */
export function hasMore(cursor: StreamCursor): boolean {
  const { events } = cursor.log
  while (cursor.at < events.length && !isFor(cursor, events[cursor.at] as Logged)) cursor.at += 1
  return cursor.at < events.length
}

/** The next batch, possibly empty, and the token that resumes right after it. */
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
