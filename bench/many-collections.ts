import { startChild } from './child.ts'
import { assertSameHash } from './content.ts'
import { documentMaker } from './load.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import { insertRaw } from './raw-insert.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, type Server, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'
import { watchAnswers } from './watch-answers.ts'

const countsInFull = [100, 1_000, 10_000]
const documentsInEach = 100
const documentBytes = 256
const creatorsAtOnce = 8
/** Over distance the naive copier, which waits several round trips for each collection, copies at most this many. */
const naiveOverDistanceMax = 1_000
const notMeasured = { naiveSeconds: Number.NaN, naiveDestinationCpu: Number.NaN }
/**
 * Server options that close idle files soon. Ten thousand collections are at least twenty thousand files, which is the most
 * that some machines let a process open. WiredTiger closes an idle file only if no checkpoint must write its data (a
 * checkpoint runs every 60 s unless `--syncdelay` is given), and if no idle session still references it.
 */
export const closeIdleFiles = [
  ...[
    '--wiredTigerEngineConfigString',
    'file_manager=(close_handle_minimum=500,close_idle_time=2,close_scan_interval=1)',
  ],
  ...['--setParameter', 'wiredTigerSessionCloseIdleTimeSecs=1', '--syncdelay', '4'],
]

interface Effort {
  seconds: number
  cpu: number
  sourceCpu: number
  destinationCpu: number
  naiveSeconds: number
  naiveDestinationCpu: number
  p50: number
  p99: number
  peakMB: number
}

/**
 * Compares the cost of each collection when there are few collections and when there are a hundred times as many.
 * Verification is on, which is the default. The naive copier does far less, so it shows how the servers' own cost of each
 * collection grows.
 */
export async function benchManyCollections(options: BenchOptions): Promise<Measured> {
  const efforts: [number, Effort][] = []
  for (const full of countsInFull) {
    const count = Math.ceil(full * options.scale)
    await using pair = await startPair({ ...options, extraArgs: closeIdleFiles })
    await createCollections(pair.source, count)
    const runs: Effort[] = []
    // The largest number of collections takes minutes, so it is measured only once.
    for (let run = 0; run < (full === countsInFull.at(-1) ? 1 : options.runs); run++) {
      const isFar = (options.link.roundTripMS ?? 0) > 0 && count > naiveOverDistanceMax
      runs.push({ ...(isFar ? notMeasured : await naiveCopy(pair)), ...(await copy(pair, options)) })
      const { seconds, naiveSeconds } = runs.at(-1) as Effort
      const naive = isFar ? 'not measured' : `${naiveSeconds.toFixed(2)} s`
      process.stderr.write(`  ${count}: naive ${naive}, tandem ${seconds.toFixed(2)} s\n`)
    }
    efforts.push([count, summaryOfRuns(runs)])
  }
  return rowOf(efforts)
}

function rowOf(efforts: [number, Effort][]): Measured {
  const figures = Object.fromEntries(
    efforts.flatMap(([count, effort]) => [
      [`${count}: ms for each`, (effort.seconds / count) * 1000],
      [`${count}: naive ms for each`, (effort.naiveSeconds / count) * 1000],
      [`${count}: tandem CPU ms for each`, (effort.cpu / count) * 1000],
      [`${count}: source CPU ms for each`, (effort.sourceCpu / count) * 1000],
      [`${count}: destination CPU ms for each`, (effort.destinationCpu / count) * 1000],
      [`${count}: naive destination CPU ms for each`, (effort.naiveDestinationCpu / count) * 1000],
      [`${count}: HTTP answers p50 ms`, effort.p50],
      [`${count}: HTTP answers p99 ms`, effort.p99],
      [`${count}: peak MB`, effort.peakMB],
    ]),
  )
  const [few, , many] = efforts.map(([count, { seconds, cpu }]) => ({ wall: seconds / count, cpu: cpu / count }))
  if (few && many) {
    figures['ratio of time per collection, most to fewest'] = many.wall / few.wall
    figures['ratio of CPU per collection, most to fewest'] = many.cpu / few.cpu
  }
  const targets = {
    'ratio of time per collection, most to fewest': { atMost: 1.3 },
    'ratio of CPU per collection, most to fewest': { atMost: 1.3 },
    ...Object.fromEntries(efforts.map(([count]) => [`${count}: HTTP answers p99 ms`, { atMost: 50 }])),
  }
  return { figures, misses: missesOf(figures, targets) }
}

async function naiveCopy(pair: Pair) {
  await empty(pair.destination)
  await waitUntilIdle(pair)
  const input = { source: pair.source.linkUri, destination: pair.destination.linkUri, database }
  await using child = await startChild<{ documents: number }>('naive-copier', input)
  const stop = startMeter({ destination: pair.destination.pid })
  await child.go()
  const { wall, destination } = stop()
  await assertSameHash(pair)
  return { naiveSeconds: wall, naiveDestinationCpu: destination }
}

async function copy(pair: Pair, options: BenchOptions) {
  await empty(pair.destination)
  await waitUntilIdle(pair)
  await using tandem = await startReady(pair, options)
  const stop = startMeter({ cpu: tandem.pid, sourceCpu: pair.source.pid, destinationCpu: pair.destination.pid })
  const stopWatching = watchAnswers(tandem)
  await syncUntilCanCommit(tandem, { verification: { enabled: true } })
  const { wall, ...cpu } = stop()
  const answers = await stopWatching()
  await assertSameHash(pair)
  return { seconds: wall, ...cpu, ...answers, peakMB: peakMegabytesOf(tandem.pid) }
}

/** Creates the collections `c0`, `c1` and so on, with some small documents each. */
export async function createCollections(source: Pick<Server, 'client'>, count: number): Promise<void> {
  const nextDocument = documentMaker(documentBytes)
  let created = 0
  const createSome = async (): Promise<void> => {
    while (created < count) {
      const name = `c${created++}`
      await insertRaw(source.client.db(database), name, Array.from({ length: documentsInEach }, nextDocument), 1)
    }
  }
  await Promise.all(Array.from({ length: creatorsAtOnce }, createSome))
}
