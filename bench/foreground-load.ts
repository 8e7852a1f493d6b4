/**
 * Sends reads and updates of random documents at a fixed rate, like an application that shares the cluster with a sync.
 *
 * The load is an open loop: each request has a scheduled time, is sent then whether or not earlier requests are answered, and
 * its latency counts from the scheduled time. A closed loop would send nothing while the server is slow, and so omit the
 * requests that would have waited longest ("coordinated omission").
 */
import os from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { type Collection, MongoClient } from 'mongodb'
import { Random } from '../test/support/random.ts'
import { serveParent } from './child-work.ts'

/** Connections that are opened before the load begins, so that opening them does not count. */
const connectionsMin = 16
const connectionsMax = 200
/**
 * The process competes for the same cores as the servers. With this priority (nice), its own waiting for a core adds little
 * to the latencies. Setting it requires a privilege; `sentLateMS` shows what remains.
 */
const priority = -18
/** Timers have a resolution of a millisecond, so a request is often sent this late although the process did not wait. */
const timerMS = 2

export interface ForegroundLoadInput {
  uri: string
  database: string
  collection: string
  /** The collection has the documents with `_id` 0 to `documents - 1`. */
  documents: number
  readsPerSecond: number
  writesPerSecond: number
  seconds: number
  seed: string
}

export interface Request {
  kind: 'read' | 'write'
  /** When the request was to be sent, in milliseconds since the epoch. */
  scheduledAt: number
  /** Milliseconds from the scheduled time until it was sent. */
  sentLateMS: number
  /** Milliseconds until the response, from the scheduled time, or from the sending if that was at most `timerMS` late. */
  latencyMS: number
}

export interface ForegroundLoadResult {
  requests: Request[]
}

await serveParent(async (input: ForegroundLoadInput) => {
  raisePriority()
  const options = { minPoolSize: connectionsMin, maxPoolSize: connectionsMax, writeConcern: { w: 'majority' } } as const
  const client = await MongoClient.connect(input.uri, options)
  const collection = client.db(input.database).collection<{ _id: number }>(input.collection)
  const random = new Random(input.seed)
  const nextId = (): number => random.int(0, input.documents - 1)
  await Promise.all(Array.from({ length: connectionsMin }, () => collection.findOne({ _id: nextId() })))
  return async (): Promise<ForegroundLoadResult> => ({ requests: await send(collection, schedule(input), nextId) })
})

function raisePriority(): void {
  try {
    os.setPriority(priority)
  } catch {
    // Without the privilege the load runs with the usual priority.
  }
}

/** Returns the requests in the order of their times, in milliseconds from the beginning. */
function schedule({ readsPerSecond, writesPerSecond, seconds }: ForegroundLoadInput): [Request['kind'], number][] {
  const evenly = (kind: Request['kind'], perSecond: number): [Request['kind'], number][] =>
    Array.from({ length: perSecond * seconds }, (_, number) => [kind, ((number + 0.5) * 1000) / perSecond])
  const all = [...evenly('read', readsPerSecond), ...evenly('write', writesPerSecond)]
  return all.sort(([, one], [, other]) => one - other)
}

async function send(
  collection: Collection<{ _id: number }>,
  planned: [Request['kind'], number][],
  nextId: () => number,
): Promise<Request[]> {
  const began = performance.now()
  const requests: Promise<Request>[] = []
  for (const [kind, at] of planned) {
    const due = began + at
    const remaining = due - performance.now()
    if (remaining > 0) await delay(remaining)
    const sentAt = performance.now()
    const work = kind === 'read' ? collection.findOne({ _id: nextId() }) : update(collection, nextId())
    requests.push(
      work.then(() => ({
        ...{ kind, scheduledAt: performance.timeOrigin + due, sentLateMS: sentAt - due },
        latencyMS: performance.now() - (sentAt - due > timerMS ? due : sentAt),
      })),
    )
  }
  return await Promise.all(requests)
}

function update(collection: Collection<{ _id: number }>, _id: number): Promise<unknown> {
  return collection.updateOne({ _id }, { $inc: { changes: 1 } })
}
