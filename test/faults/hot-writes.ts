import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { Random } from '../support/random.ts'
import { until } from '../support/until.ts'

const documents = 40
const pauseMS = 4

export interface HotWrites {
  /** Resolves when the destination has at least one of the documents. */
  arrive(destinationUri: string): Promise<void>
  /** Resolves when the last write is acknowledged. */
  stop(): Promise<void>
}

/**
 * Starts a client that continually changes a few documents of `hot.documents`. Almost every batch that tandem sends
 * contains one of these documents, so a batch that takes effect late overwrites newer documents.
 */
export async function startHotWrites(uri: string, seeds: Random): Promise<HotWrites> {
  // The writes have a generator of their own because the number of draws depends on timing.
  const random = new Random(seeds.uint32())
  const client = await MongoClient.connect(uri)
  const collection = client.db('hot').collection<{ _id: number; n?: number }>('documents')
  let isOver = false
  const writing = (async () => {
    while (!isOver) {
      const _id = random.int(1, documents)
      if (random.chance(0.1)) await collection.deleteOne({ _id })
      else await collection.updateOne({ _id }, { $inc: { n: 1 } }, { upsert: true })
      await sleep(pauseMS)
    }
  })()
  writing.catch(() => {})
  return {
    arrive: async (destinationUri) => {
      await using other = await MongoClient.connect(destinationUri)
      await until('hot writes on the destination', async () => {
        if ((await other.db('hot').collection('documents').findOne()) === null) throw new Error('none')
      })
    },
    stop: async () => {
      isOver = true
      await writing.finally(() => client.close())
    },
  }
}
