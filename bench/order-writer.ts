/** Runs the transactions of `OrderMix`, at a fixed rate or as fast as the server acknowledges them. */
import { setTimeout as delay } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { serveParent } from './child-work.ts'
import { type OrderData, OrderMix } from './orders.ts'

const clients = 4

export interface OrderWriterInput {
  uri: string
  database: string
  data: OrderData
  transactions: number
  /** No transaction begins after this time, even if not all have run. */
  secondsMax: number
  /** Null: as fast as possible. */
  perSecond: number | null
  /** Must be different for each run on the same data, because it is a part of the `_id`s. */
  seed: string
}

export interface OrderWriterResult {
  transactions: number
  seconds: number
  /** When the last transaction was acknowledged, in milliseconds since the epoch. */
  endedAt: number
}

await serveParent(async ({ uri, database, data, transactions, secondsMax, perSecond, seed }: OrderWriterInput) => {
  const client = await MongoClient.connect(uri, { minPoolSize: clients, writeConcern: { w: 'majority' } })
  const mixes = Array.from(
    { length: clients },
    (_, index) => new OrderMix(client.db(database), data, `${seed} ${index}`),
  )
  return async (): Promise<OrderWriterResult> => {
    const began = performance.now()
    let taken = 0
    // After a slow response the delayed transactions follow at once, so that the average rate stays the same.
    const run = async (mix: OrderMix): Promise<void> => {
      await client.withSession(async (session) => {
        while (taken < transactions && performance.now() - began < 1_000 * secondsMax) {
          const due = perSecond === null ? 0 : began + (taken * 1_000) / perSecond - performance.now()
          taken += 1
          if (due > 0) await delay(due)
          const transaction = mix.next()
          await session.withTransaction(() => transaction(session))
        }
      })
    }
    await Promise.all(mixes.map(run))
    const ended = performance.now()
    return { transactions: taken, seconds: (ended - began) / 1_000, endedAt: performance.timeOrigin + ended }
  }
})
