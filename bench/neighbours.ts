import { setTimeout as delay } from 'node:timers/promises'
import type { LoadLevel } from '../src/domain/load-level.ts'
import { metadataDatabase } from '../src/domain/namespace.ts'
import { startSync, type Tandem } from '../test/support/tandem-process.ts'
import { fillForeground, latenciesOf, startForeground } from './foreground.ts'
import type { Request } from './foreground-load.ts'
import { load } from './load.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { giveWay, separateServers } from './separate-cores.ts'
import { database, type Pair, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady } from './tandem-run.ts'

const documentsInFull = 1_000_000
const foregroundDocumentsInFull = 500_000
const readsPerSecond = 200
const writesPerSecond = 100
const secondsInFull = 15
const warmUpSeconds = 3
/** The load runs this much longer, because the copy does not begin at once. */
const startSecondsMax = 6
const pollMS = 50
const patienceMS = 600_000
const seed = 'foreground'

/** The level is mild if the p99 of a foreground request grows by less than this factor. */
const targetRatio = 1.5
const mildLevels: readonly LoadLevel[] = [1, 2]

/**
 * Measures how much an application's requests slow down while tandem copies with a load level: on the source and on the
 * destination runs a load of reads and updates at a fixed rate, once alone and once during the copy.
 */
export async function benchNeighbours(level: LoadLevel, options: BenchOptions): Promise<Measured> {
  await using pair = await startPair(options)
  const shape = {
    name: '1k' as const,
    title: '',
    collections: 1,
    documents: Math.ceil(documentsInFull * options.scale),
  }
  await load(pair.source, { ...shape, documentBytes: 1_024 })
  const documents = Math.ceil(foregroundDocumentsInFull * options.scale)
  for (const server of [pair.source, pair.destination]) await fillForeground(server, documents)
  const separate = await separateServers(pair)
  if (!separate) process.stderr.write('  the servers share all cores\n')
  const all: Record<string, number>[] = []
  for (let run = 0; run < options.runs; run++) {
    for (const name of [database, metadataDatabase]) await pair.destination.client.db(name).dropDatabase()
    all.push(await measure(pair, level, documents, options))
  }
  const figures = summaryOfRuns(all)
  const targets = Object.keys(figures).filter((name) => name.startsWith('ratio'))
  const isMild = mildLevels.includes(level)
  const misses = isMild
    ? missesOf(figures, Object.fromEntries(targets.map((name) => [name, { atMost: targetRatio }])))
    : []
  return { figures, misses }
}

interface Foreground {
  source: Request[]
  destination: Request[]
}

async function measure(
  pair: Pair,
  level: LoadLevel,
  documents: number,
  options: BenchOptions,
): Promise<Record<string, number>> {
  const seconds = Math.max(5, secondsInFull * options.scale)
  await waitUntilIdle(pair)
  const before = await withForeground(pair, documents, warmUpSeconds + seconds, async () => null)
  const from = before.beganAt + warmUpSeconds * 1_000
  const alone = summaryOf(before.requests, from, from + seconds * 1_000)

  await waitUntilIdle(pair)
  await using tandem = await startReady(pair, options, { TANDEM_LOAD_LEVEL: String(level) })
  giveWay(tandem.pid)
  const stop = { read: startMeter({}) as () => Record<string, number> }
  const during = await withForeground(pair, documents, warmUpSeconds + seconds + startSecondsMax, async () => {
    await delay(warmUpSeconds * 1_000)
    const include = [{ database }]
    await startSync(tandem, {
      ...{ verification: { enabled: false }, includeNamespaces: include, enableUserWriteBlocking: 'none' },
    })
    const began = await untilCopied(tandem, 1)
    stop.read = startMeter({ tandem: tandem.pid, source: pair.source.pid, destination: pair.destination.pid })
    const ended = await untilCopied(tandem, Number.POSITIVE_INFINITY, performance.now() + seconds * 1_000)
    return { began, ended, cpu: stop.read() }
  })
  const { began, ended, cpu } = during.result
  const copying = summaryOf(during.requests, began.at, ended.at)
  const wall = (ended.at - began.at) / 1_000
  const share = (name: string): number => (100 * (cpu[name] ?? Number.NaN)) / wall
  const figures = {
    ...Object.fromEntries(
      Object.entries(copying.p99).map(([name, p99]) => [`ratio of p99, ${name}`, p99 / (alone.p99[name] as number)]),
    ),
    ...prefixed('p99 ms alone', alone.p99),
    ...prefixed('p99 ms during the copy', copying.p99),
    ...prefixed('p50 ms alone', alone.p50),
    ...prefixed('p50 ms during the copy', copying.p50),
    ...prefixed('sent late p99 ms during the copy', copying.sentLate),
    'copied MB/s': (ended.bytes - began.bytes) / 1e6 / wall,
    'measured s of the copy': wall,
    'tandem CPU %': share('tandem'),
    'source CPU %': share('source'),
    'destination CPU %': share('destination'),
    'tandem peak MB': peakMegabytesOf(tandem.pid),
  }
  process.stderr.write(
    `  level ${level}: ${Object.entries(figures)
      .filter(([name]) => name.startsWith('ratio') || name.includes('MB/s'))
      .map(([name, value]) => `${name} ${value.toFixed(2)}`)
      .join(', ')}\n`,
  )
  return figures
}

/** Runs the load on both clusters for some seconds, and `work` meanwhile. */
async function withForeground<Result>(
  { source, destination }: Pair,
  documents: number,
  seconds: number,
  work: () => Promise<Result>,
): Promise<{ requests: Foreground; beganAt: number; result: Result }> {
  const input = { documents, readsPerSecond, writesPerSecond, seconds, seed }
  await using onSource = await startForeground(source, input)
  await using onDestination = await startForeground(destination, input)
  const beganAt = performance.timeOrigin + performance.now()
  const [ofSource, ofDestination, result] = await Promise.all([onSource.go(), onDestination.go(), work()])
  return { requests: { source: ofSource.requests, destination: ofDestination.requests }, beganAt, result }
}

interface Moment {
  /** Milliseconds since the epoch. */
  at: number
  bytes: number
}

/** Resolves when this many bytes are copied, when everything is copied, or at the deadline. */
async function untilCopied(
  tandem: Tandem,
  bytesMin: number,
  deadline = performance.now() + patienceMS,
): Promise<Moment> {
  for (;;) {
    const { canCommit, collectionCopy, state, failure } = await tandem.progress()
    if (state === 'FAILED') throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${tandem.output()}`)
    const bytes = collectionCopy?.estimatedCopiedBytes ?? 0
    const isCopied = bytes >= (collectionCopy?.estimatedTotalBytes ?? Number.POSITIVE_INFINITY)
    const isDone = canCommit || (bytes > 0 && isCopied) || bytes >= bytesMin
    if (isDone || performance.now() > deadline) return { at: performance.timeOrigin + performance.now(), bytes }
    await delay(pollMS)
  }
}

function summaryOf(requests: Foreground, from: number, to: number) {
  const of = (figure: 'p50' | 'p99' | 'sentLateP99'): Record<string, number> =>
    Object.fromEntries(
      (['source', 'destination'] as const).flatMap((side) =>
        (['read', 'write'] as const).map((kind) => [
          `${side} ${kind}s`,
          latenciesOf(requests[side], kind, from, to)[figure],
        ]),
      ),
    )
  return { p50: of('p50'), p99: of('p99'), sentLate: of('sentLateP99') }
}

function prefixed(what: string, figures: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [`${what}, ${name}`, value]))
}
