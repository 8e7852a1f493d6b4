import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { Random } from '../support/random.ts'
import { until } from '../support/until.ts'

const documents = 40
const pauseMS = 4

export interface HotWrites {
  /** Resolves when the other cluster has some of them. */
  arrive(destinationUri: string): Promise<void>
  /** Resolves when the last write is acknowledged. */
  stop(): Promise<void>
}

/**
 * Clients that change a few documents of `hot.documents` over and over: almost any batch that tandem sends holds one of them, and
 * whatever of it takes effect late is older than what is there.
 */
export async function startHotWrites(uri: string, seeds: Random): Promise<HotWrites> {
  // Of its own, for how many it draws depends on the time.
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
