import { startChild } from './child.ts'
import { peakMegabytesOf, quantile, startMeter, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import type { SentinelInput } from './sentinel.ts'
import { database, empty, type Pair, startPair, waitUntilIdle } from './servers.ts'
import type { SteadyWriterInput } from './steady-writer.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const operationsPerSecond = 2_000
const changesPerSecond = 20
const secondsInFull = 30

/**
 * Measures how long a change takes to reach the destination under a steady load on the source, with or without the
 * verifier.
 */
export async function benchLag(options: BenchOptions, verification: boolean): Promise<Measured> {
  await using pair = await startPair(options)
  const all: Record<string, number>[] = []
  for (let run = 0; run < options.runs; run++) {
    for (const server of [pair.source, pair.destination]) await empty(server)
    const figures = await measure(pair, options, verification)
    process.stderr.write(`  p99 ${figures['p99 ms']?.toFixed(0)} ms\n`)
    all.push(figures)
  }
  const figures = summaryOfRuns(all)
  const { roundTripMS = 0 } = options.link
  // Over distance, an event, the document and its write take at least three round trips.
  const atMost = roundTripMS > 0 ? 150 + 4 * roundTripMS : 300
  return { figures, misses: missesOf(figures, { 'p99 ms': { atMost } }) }
}

async function measure(pair: Pair, options: BenchOptions, verification: boolean): Promise<Record<string, number>> {
  const { source, destination } = pair
  const seconds = secondsInFull * options.scale
  const db = source.client.db(database)
  await Promise.all([db.createCollection('steady'), db.createCollection('sentinel')])
  await using tandem = await startReady(pair, options)
  await syncUntilCanCommit(tandem, { verification: { enabled: verification } })
  const writing: SteadyWriterInput = { uri: source.uri, database, collection: 'steady', operationsPerSecond, seconds }
  const watching: SentinelInput = {
    ...{ source: source.uri, destination: destination.directUri, database, collection: 'sentinel' },
    ...{ changesPerSecond, seconds },
  }
  await using writer = await startChild<{ operationsPerSecond: number }>('steady-writer', writing)
  await using sentinel = await startChild<{ lagsMS: number[] }>('sentinel', watching)
  await waitUntilIdle(pair)
  const stop = startMeter({ tandem: tandem.pid, source: source.pid, destination: destination.pid })
  const [written, { lagsMS }] = await Promise.all([writer.go(), sentinel.go()])
  const cpu = stop()
  return {
    'operations/s': written.operationsPerSecond,
    seconds,
    'sentinel changes': lagsMS.length,
    'p50 ms': quantile(lagsMS, 0.5),
    'p99 ms': quantile(lagsMS, 0.99),
    'max ms': quantile(lagsMS, 1),
    'tandem CPU s': cpu.tandem,
    'source CPU s': cpu.source,
    'destination CPU s': cpu.destination,
    'tandem peak MB': peakMegabytesOf(tandem.pid),
  }
}
