/** Writes a given number of operations per second in small bulks, as the load under which lag is measured. */
import { setTimeout as delay } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { serveParent } from './child-work.ts'
import { type Item, OperationMix } from './operations.ts'

const bulkIntervalMS = 10

export interface SteadyWriterInput {
  uri: string
  database: string
  collection: string
  operationsPerSecond: number
  seconds: number
}

await serveParent(async ({ uri, database, collection, operationsPerSecond, seconds }: SteadyWriterInput) => {
  const client = await MongoClient.connect(uri)
  const target = client.db(database).collection<Item>(collection)
  const mix = new OperationMix(0, 'mixed')
  return async () => {
    const began = performance.now()
    const wanted = operationsPerSecond * seconds
    let written = 0
    while (written < wanted) {
      // After a slow response, the next bulk also contains the delayed operations, so the average rate stays the same.
      const due = Math.min(wanted, Math.ceil((operationsPerSecond * (performance.now() - began)) / 1000)) - written
      if (due > 0) await target.bulkWrite(mix.take(due), { ordered: false })
      written += Math.max(0, due)
      await delay(bulkIntervalMS)
    }
    return { operationsPerSecond: wanted / ((performance.now() - began) / 1000) }
  }
})
