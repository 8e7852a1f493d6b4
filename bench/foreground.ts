import type { MongoClient } from 'mongodb'
import { type Child, startChild } from './child.ts'
import type { ForegroundLoadInput, ForegroundLoadResult, Request } from './foreground-load.ts'
import { quantile } from './measure.ts'
import type { Server } from './servers.ts'
import { TextPool } from './text.ts'

/** A database that the sync's filter does not select, so that the load can run on both clusters. */
const foregroundDatabase = 'neighbour'
const collection = 'items'
const documentBytes = 1_024
const batchDocuments = 4_000
const insertsAtOnce = 4

/** Creates the collection that the load reads and updates, with `_id` 0 to `documents - 1`. */
export async function fillForeground({ client }: { client: MongoClient }, documents: number): Promise<void> {
  const items = client.db(foregroundDatabase).collection<{ _id: number }>(collection)
  const pool = new TextPool('foreground', 1_000_000)
  let next = 0
  const insertBatches = async (): Promise<void> => {
    while (next < documents) {
      const from = next
      next = Math.min(documents, from + batchDocuments)
      const batch = Array.from({ length: next - from }, (_, offset) => {
        return { _id: from + offset, changes: 0, text: pool.piece(documentBytes - 60) }
      })
      await items.insertMany(batch, { ordered: false, writeConcern: { w: 1 } })
    }
  }
  await Promise.all(Array.from({ length: insertsAtOnce }, insertBatches))
}

type Load = Omit<ForegroundLoadInput, 'uri' | 'database' | 'collection'>

/** Starts the load of one cluster, which waits for `go`. */
export function startForeground({ uri }: Pick<Server, 'uri'>, load: Load): Promise<Child<ForegroundLoadResult>> {
  const input: ForegroundLoadInput = { uri, database: foregroundDatabase, collection, ...load }
  return startChild<ForegroundLoadResult>('foreground-load', input)
}

export interface Latencies {
  requests: number
  p50: number
  p99: number
  /** How late the process of the load sent a request. A high value means that this process itself waited for a core. */
  sentLateP99: number
}

/** Summarizes the requests of one kind that were scheduled in an interval of milliseconds since the epoch. */
export function latenciesOf(requests: Request[], kind: Request['kind'], from: number, to: number): Latencies {
  const chosen = requests.filter((one) => one.kind === kind && one.scheduledAt >= from && one.scheduledAt < to)
  const latencies = chosen.map(({ latencyMS }) => latencyMS)
  return {
    requests: chosen.length,
    p50: quantile(latencies, 0.5),
    p99: quantile(latencies, 0.99),
    sentLateP99: quantile(
      chosen.map(({ sentLateMS }) => sentLateMS),
      0.99,
    ),
  }
}
