import { setTimeout as delay } from 'node:timers/promises'
import { startChild } from './child.ts'
import { createCollections } from './many-collections.ts'
import { startMeter, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import type { SentinelInput, SentinelResult } from './sentinel.ts'
import { database, empty, type Pair, type Server, startPair, waitUntilIdle } from './servers.ts'
import type { SteadyWriterInput } from './steady-writer.ts'
import { type BenchOptions, startInstances, syncAllUntilCanCommit } from './tandem-run.ts'

const collections = 500
const indexesInFull = 100
/** Number of instances of the two cases that are compared. */
const counts = [1, 4] as const
const operationsPerSecond = 200
const changesPerSecond = 20
/** How long the load runs before and after the burst of createIndexes, in seconds. */
const secondsBefore = 3
const secondsAfter = 30
/** An instance has caught up when its lag is below this, in ms. */
const behindMS = 2_000
const creatorsAtOnce = 4
const pollMS = 50
const sentinel = 'sentinel'

interface Effort {
  burst: number
  indexed: number
  back: number
  worst: number
  cpu: number
}

/**
 * Creates one index on each of many old collections of a large database while tandem follows, and measures how long the
 * changes of documents are delayed. Each createIndexes is a barrier for the instances.
 */
export async function benchDdl(options: BenchOptions): Promise<Measured> {
  const indexes = Math.ceil(indexesInFull * options.scale)
  await using pair = await startPair(options)
  await createCollections(pair.source, collections)
  await pair.source.client.db(database).createCollection('steady')
  await pair.source.client.db(database).createCollection(sentinel)
  const efforts: Effort[][] = counts.map(() => [])
  for (let run = 0; run < options.runs; run++) {
    for (const [at, count] of counts.entries()) {
      const effort = await measure(count, indexes, pair, options)
      efforts[at]?.push(effort)
      process.stderr.write(
        `  ${count} instances: burst ${effort.burst.toFixed(2)} s, indexed after ${effort.indexed.toFixed(2)} s, back after ${effort.back.toFixed(2)} s, worst lag ${effort.worst.toFixed(2)} s\n`,
      )
    }
  }
  const figures: Record<string, number> = { collections, indexes }
  for (const [at, count] of counts.entries()) {
    const { burst, indexed, back, worst, cpu } = summaryOfRuns(efforts[at] ?? [])
    figures[`${count}: s of the burst on the source`] = burst
    figures[`${count}: s from its end until all indexes exist`] = indexed
    figures[`${count}: s from its end until lag < 2 s`] = back
    figures[`${count}: worst lag s`] = worst
    figures[`${count}: CPU s of all instances`] = cpu
  }
  const targets = Object.fromEntries(
    counts.map((count) => [`${count}: s from its end until lag < 2 s`, { atMost: 10 }]),
  )
  return { figures, misses: missesOf(figures, targets) }
}

async function measure(count: number, indexes: number, pair: Pair, options: BenchOptions): Promise<Effort> {
  const { source, destination } = pair
  await empty(destination)
  await dropIndexes(source)
  await waitUntilIdle(pair)
  const instances = await startInstances(count, pair, options)
  try {
    await syncAllUntilCanCommit(instances)
    const seconds = secondsBefore + secondsAfter
    const writing: SteadyWriterInput = {
      ...{ uri: source.uri, database, collection: 'steady', operationsPerSecond, seconds },
    }
    const watching: SentinelInput = {
      ...{ source: source.uri, destination: destination.directUri, database, collection: sentinel },
      ...{ changesPerSecond, seconds },
    }
    await using writer = await startChild('steady-writer', writing)
    await using watcher = await startChild<SentinelResult>('sentinel', watching)
    for (const name of ['steady', sentinel]) await emptyOnBoth(pair, name)
    await waitUntilIdle(pair)
    const stop = startMeter({ tandem: instances.map(({ pid }) => pid) })
    const load = Promise.all([writer.go(), watcher.go()])
    load.catch(() => {}) // It is awaited below.
    await delay(secondsBefore * 1_000)
    const began = performance.now()
    await createIndexes(source, indexes)
    const ended = performance.now()
    await untilIndexed(destination, indexes)
    const indexed = (performance.now() - ended) / 1_000
    const [, { lagsMS, sentAtMS }] = await load
    const { tandem: cpu } = stop()
    const endedAt = performance.timeOrigin + ended
    const arrivals = sentAtMS.map((sentAt, at) => ({ lag: lagsMS[at] as number, at: sentAt + (lagsMS[at] as number) }))
    const lastBehind = Math.max(endedAt, ...arrivals.filter(({ lag }) => lag >= behindMS).map(({ at }) => at))
    return {
      burst: (ended - began) / 1_000,
      indexed,
      back: (lastBehind - endedAt) / 1_000,
      worst: Math.max(...lagsMS) / 1_000,
      cpu,
    }
  } finally {
    await Promise.all(instances.map((instance) => instance.stop()))
  }
}

async function createIndexes({ client }: Server, indexes: number): Promise<void> {
  let created = 0
  const createSome = async (): Promise<void> => {
    while (created < indexes) await client.db(database).collection(`c${created++}`).createIndex({ score: 1 })
  }
  await Promise.all(Array.from({ length: creatorsAtOnce }, createSome))
}

async function dropIndexes({ client }: Server): Promise<void> {
  for (let at = 0; at < indexesInFull; at++) await client.db(database).collection(`c${at}`).dropIndexes()
}

/** Removes the documents of an earlier run, and waits until tandem has followed. */
async function emptyOnBoth({ source, destination }: Pair, name: string): Promise<void> {
  await source.client.db(database).collection(name).deleteMany({})
  while (await destination.client.db(database).collection(name).findOne()) await delay(pollMS)
}

/** Resolves when every index has reached the destination. */
async function untilIndexed({ client }: Server, indexes: number): Promise<void> {
  for (let at = 0; at < indexes; ) {
    const found = await client.db(database).collection(`c${at}`).indexes()
    if (found.length === 2) at++
    else await delay(pollMS)
  }
}
