/**
 * Changes one document repeatedly on the source and polls it on the destination. The lag of a change is the time from just
 * before it is sent to the source until a read of the destination returns it or a later change.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Collection, MongoClient } from 'mongodb'
import { serveParent } from './child-work.ts'

const pollMS = 2
const patienceMS = 300_000

export interface SentinelInput {
  source: string
  destination: string
  database: string
  collection: string
  changesPerSecond: number
  seconds: number
}

export interface SentinelResult {
  /** The lag of each change, in milliseconds. */
  lagsMS: number[]
  /** When each change was sent, in milliseconds since the epoch. */
  sentAtMS: number[]
}

interface Sentinel {
  _id: string
  number: number
}

await serveParent(async (input: SentinelInput) => {
  const [source, destination] = await Promise.all([
    MongoClient.connect(input.source),
    MongoClient.connect(input.destination),
  ])
  const [written, watched] = [source, destination].map((client) =>
    client.db(input.database).collection<Sentinel>(input.collection),
  ) as [Collection<Sentinel>, Collection<Sentinel>]
  const wanted = Math.round(input.changesPerSecond * input.seconds)
  return async (): Promise<SentinelResult> => {
    const sentAt: number[] = []
    const [, lagsMS] = await Promise.all([write(written, wanted, input, sentAt), watch(watched, wanted, sentAt)])
    return { lagsMS, sentAtMS: sentAt.map((at) => performance.timeOrigin + at) }
  }
})

async function write(
  collection: Collection<Sentinel>,
  wanted: number,
  { changesPerSecond }: SentinelInput,
  sentAt: number[],
): Promise<void> {
  const began = performance.now()
  for (let number = 0; number < wanted; number++) {
    await delay(Math.max(0, began + (number * 1000) / changesPerSecond - performance.now()))
    sentAt.push(performance.now())
    await collection.updateOne({ _id: 'sentinel' }, { $set: { number } }, { upsert: true })
  }
}

/** Returns the lag of every change in milliseconds. It reads the destination only while a change is outstanding. */
async function watch(collection: Collection<Sentinel>, wanted: number, sentAt: number[]): Promise<number[]> {
  const lagsMS: number[] = []
  while (lagsMS.length < wanted) {
    await delay(pollMS)
    if (sentAt.length === lagsMS.length) continue
    const found = await collection.findOne({ _id: 'sentinel' })
    const readAt = performance.now()
    while (lagsMS.length <= (found?.number ?? -1)) lagsMS.push(readAt - (sentAt[lagsMS.length] as number))
    const oldest = sentAt[lagsMS.length]
    if (oldest !== undefined && readAt - oldest > patienceMS)
      throw new Error(`a change did not reach the destination within ${patienceMS} ms`)
  }
  return lagsMS
}
