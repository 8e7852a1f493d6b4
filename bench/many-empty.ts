import { setTimeout as delay } from 'node:timers/promises'
import { closeIdleFiles } from './many-collections.ts'
import { median, peakMegabytesOf, startMeter } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { database, type Pair, type Server, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'
import { watchAnswers } from './watch-answers.ts'

const collectionsInFull = 100_000
const creatorsAtOnce = 8
const changes = 10
const pollMS = 5
const changeLimitMS = 120_000

/**
 * Measures a database with very many empty collections: the time until `canCommit`, and then the time and CPU of a single
 * change of definitions, for which tandem lists the collections of the database.
 */
export async function benchManyEmpty(options: BenchOptions): Promise<Measured> {
  const count = Math.ceil(collectionsInFull * options.scale)
  await using pair = await startPair({ ...options, extraArgs: closeIdleFiles })
  const began = performance.now()
  await createEmpty(pair.source, count)
  const created = (performance.now() - began) / 1_000
  process.stderr.write(`  ${count} collections created in ${created.toFixed(1)} s\n`)
  await waitUntilIdle(pair)
  await using tandem = await startReady(pair, options)
  const stop = startMeter({ cpu: tandem.pid, sourceCpu: pair.source.pid, destinationCpu: pair.destination.pid })
  const stopWatching = watchAnswers(tandem)
  await syncUntilCanCommit(tandem, { verification: { enabled: true } })
  const { wall, cpu, sourceCpu, destinationCpu } = stop()
  const { p50, p99 } = await stopWatching()
  process.stderr.write(`  canCommit after ${wall.toFixed(1)} s\n`)
  const stopChanges = startMeter({ cpu: tandem.pid, sourceCpu: pair.source.pid, destinationCpu: pair.destination.pid })
  const took: number[] = []
  for (let change = 0; change < changes; change++) took.push(await followedIndex(pair, change))
  const during = stopChanges()
  const figures = {
    collections: count,
    'ms for each, creating them on the source': (created * 1_000) / count,
    'ms for each, start to canCommit': (wall * 1_000) / count,
    'tandem CPU ms for each': (cpu * 1_000) / count,
    'source CPU ms for each': (sourceCpu * 1_000) / count,
    'destination CPU ms for each': (destinationCpu * 1_000) / count,
    'HTTP answers p50 ms': p50,
    'HTTP answers p99 ms': p99,
    'a change of definitions, ms until the destination has it': median(took),
    'a change of definitions, CPU ms of tandem': (during.cpu * 1_000) / changes,
    'a change of definitions, CPU ms of the source': (during.sourceCpu * 1_000) / changes,
    'a change of definitions, CPU ms of the destination': (during.destinationCpu * 1_000) / changes,
    'peak MB': peakMegabytesOf(tandem.pid),
  }
  return { figures, misses: missesOf(figures, { 'HTTP answers p99 ms': { atMost: 50 } }) }
}

async function createEmpty({ client }: Pick<Server, 'client'>, count: number): Promise<void> {
  let created = 0
  const createSome = async (): Promise<void> => {
    while (created < count) await client.db(database).createCollection(`e${created++}`)
  }
  await Promise.all(Array.from({ length: creatorsAtOnce }, createSome))
}

/** Creates an index on the source and returns the milliseconds until the destination has it. */
async function followedIndex({ source, destination }: Pair, change: number): Promise<number> {
  const began = performance.now()
  await source.client.db(database).collection(`e${change}`).createIndex({ field: 1 })
  const copied = destination.client.db(database).collection(`e${change}`)
  while ((await copied.indexes()).length < 2) {
    if (performance.now() - began > changeLimitMS) throw new Error(`index ${change} has not reached the destination`)
    await delay(pollMS)
  }
  return performance.now() - began
}
