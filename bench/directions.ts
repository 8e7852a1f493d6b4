import { setTimeout as delay } from 'node:timers/promises'
import { startSync, type Tandem } from '../test/support/tandem-process.ts'
import { startChild } from './child.ts'
import { assertSameHash } from './content.ts'
import { commitUntilCanWrite, untilCaughtUp, untilState } from './cutover-commit.ts'
import { secondsUntilCaughtUp } from './lag-over-time.ts'
import { peakMegabytesOf, quantile, startMeter, summaryOfRuns } from './measure.ts'
import type { OrderWriterInput, OrderWriterResult } from './order-writer.ts'
import { fillOrders, type OrderData } from './orders.ts'
import { type Measured, missesOf } from './report.ts'
import type { SentinelInput, SentinelResult } from './sentinel.ts'
import { database, empty, type Pair, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady } from './tandem-run.ts'

const dataInFull: OrderData = { customers: 30_000, districts: 100, stock: 100_000 }
const transactionsPerSecond = 60
const steadySecondsInFull = 20
const burstTransactionsInFull = 6_000
/** The changes of the sentinel must not end before the lag after the burst does. */
const burstSecondsInFull = 40
const backlogSecondsInFull = 20
/** More than any machine runs in the time of the backlog, which therefore ends the load. */
const backlogTransactions = 1_000_000
/** The load lasts for so many times the seconds in which the backlog grows. */
const backlogLoadTimes = 3
const changesPerSecond = 20
const pollMS = 100
const patienceMS = 300_000

const directions = ['forward', 'reversed', 'forward again'] as const

/**
 * Follows the same load forward, then reversed after a commit, then forward again after a second one. Each direction has a
 * steady load, a burst at full speed, and a backlog: the load that ran for some seconds before `reverse`, or while the sync
 * was paused.
 */
export async function benchDirections(options: BenchOptions): Promise<(Measured & { name: string })[]> {
  await using pair = await startPair(options)
  const all: Record<(typeof directions)[number], Record<string, number>[]> = {
    ...{ forward: [], reversed: [], 'forward again': [] },
  }
  for (let run = 0; run < options.runs; run++) {
    for (const server of [pair.source, pair.destination]) await empty(server)
    const measured = await measureAll(pair, `run${run}`, options)
    for (const direction of directions) all[direction].push(measured[direction])
  }
  const forward = summaryOfRuns(all.forward)
  return directions.map((name) => {
    const figures = summaryOfRuns(all[name])
    const ratio = (figure: string): number => (figures[figure] as number) / (forward[figure] as number)
    const compared = {
      'ratio of p99 to forward, steady': ratio('steady: lag p99 ms'),
      'ratio of p99 to forward, burst': ratio('burst: lag p99 ms'),
      ...figures,
    }
    const targets = {
      'ratio of p99 to forward, steady': { atMost: 1.5 },
      'ratio of p99 to forward, burst': { atMost: 1.5 },
    }
    return { name, figures: compared, misses: missesOf(compared, targets) }
  })
}

interface Sync {
  tandem: Tandem
  /** The clusters in the present direction. */
  pair: Pair
  data: OrderData
  /** Distinguishes the loads that run on the same data. */
  seed: string
  scale: number
}

async function measureAll(pair: Pair, seed: string, options: BenchOptions) {
  const { scale } = options
  const data = {
    ...{ customers: Math.ceil(dataInFull.customers * scale), districts: dataInFull.districts },
    stock: Math.ceil(dataInFull.stock * scale),
  }
  await fillOrders(pair.source.client.db(database), data)
  await using tandem = await startReady(pair, options)
  await startSync(tandem, { reversible: true, enableUserWriteBlocking: 'sourceAndDestination' })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 600, what: 'the copy to end' })
  const turned: Pair = { ...pair, source: pair.destination, destination: pair.source }
  const sync = (name: string, now: Pair): Sync => ({ tandem, pair: now, data, seed: `${seed} ${name}`, scale })
  const forward = await follow(sync('forward', pair), () => pauseUnderLoad(sync('forward', pair)))
  await commit(tandem)
  const reversed = await follow(sync('reversed', turned), undefined, () => reverseUnderLoad(sync('reversed', turned)))
  await commit(tandem)
  const again = await follow(sync('again', pair), undefined, () => reverseUnderLoad(sync('again', pair)))
  return { forward, reversed, 'forward again': again }
}

type Figures = Record<string, number>

/** Measures one direction. The backlog comes last if it is a pause, and first if it precedes a reversal. */
async function follow(
  sync: Sync,
  pause: (() => Promise<Figures>) | undefined,
  reverse?: () => Promise<Figures>,
): Promise<Figures> {
  const { tandem, pair, scale } = sync
  const behind = (await reverse?.()) ?? {}
  await untilCaughtUp(tandem)
  const steadySeconds = Math.max(5, steadySecondsInFull * scale)
  const steady = await underLoad(sync, 'steady', {
    ...{ transactions: Math.ceil(transactionsPerSecond * steadySeconds), perSecond: transactionsPerSecond },
    seconds: steadySeconds,
  })
  const burst = await underLoad(sync, 'burst', {
    ...{ transactions: Math.ceil(burstTransactionsInFull * scale), perSecond: null },
    seconds: Math.max(5, burstSecondsInFull * scale),
  })
  const paused = (await pause?.()) ?? {}
  await untilCaughtUp(tandem)
  await assertSameHash(pair)
  process.stderr.write(
    `  ${sync.seed}: steady p99 ${steady['steady: lag p99 ms']?.toFixed(0)} ms, burst p99 ${burst['burst: lag p99 ms']?.toFixed(0)} ms\n`,
  )
  return { ...steady, ...burst, ...behind, ...paused, 'tandem peak MB': peakMegabytesOf(tandem.pid) }
}

interface LoadOf {
  transactions: number
  perSecond: number | null
  /** How long the sentinel changes its document. */
  seconds: number
}

async function underLoad(sync: Sync, what: string, { seconds, ...load }: LoadOf): Promise<Figures> {
  const { tandem, pair } = sync
  const { source, destination } = pair
  // Each sentinel has a collection of its own, so that it does not find a change of an earlier one.
  const collection = `sentinel ${sync.seed} ${what}`
  await source.client.db(database).createCollection(collection)
  while (!(await destination.client.db(database).listCollections({ name: collection }).hasNext())) await delay(pollMS)
  const watching: SentinelInput = {
    ...{ source: source.uri, destination: destination.directUri, database, collection },
    ...{ changesPerSecond, seconds },
  }
  await using writer = await startWriter(sync, what, { ...load, secondsMax: patienceMS / 1_000 })
  await using sentinel = await startChild<SentinelResult>('sentinel', watching)
  await waitUntilIdle(pair)
  const stop = startMeter({ tandem: tandem.pid, source: source.pid, destination: destination.pid })
  const [written, watched] = await Promise.all([writer.go(), sentinel.go()])
  await untilCaughtUp(tandem)
  const cpu = stop()
  const { lagsMS } = watched
  return {
    [`${what}: transactions/s`]: written.transactions / written.seconds,
    [`${what}: lag p50 ms`]: quantile(lagsMS, 0.5),
    [`${what}: lag p99 ms`]: quantile(lagsMS, 0.99),
    [`${what}: lag max ms`]: quantile(lagsMS, 1),
    [`${what}: s from the last write until lag < 1 s`]: secondsUntilCaughtUp(watched, written.endedAt),
    [`${what}: tandem CPU s`]: cpu.tandem,
    [`${what}: source CPU s`]: cpu.source,
    [`${what}: destination CPU s`]: cpu.destination,
  }
}

type WriterLoad = Pick<OrderWriterInput, 'transactions' | 'perSecond' | 'secondsMax'>

function startWriter({ pair, data, seed }: Sync, what: string, load: WriterLoad) {
  const input: OrderWriterInput = { uri: pair.source.uri, database, data, seed: `${seed} ${what}`, ...load }
  return startChild<OrderWriterResult>('order-writer', input)
}

/** Writes at full speed for some seconds before `reverse`, as applications do after a commit, and continues afterwards. */
function reverseUnderLoad(sync: Sync): Promise<Figures> {
  return behind(sync, async () => {}, 'reverse')
}

/** For comparison: lets the same backlog arise by a pause. */
function pauseUnderLoad(sync: Sync): Promise<Figures> {
  const pause = async (): Promise<void> => {
    await send(sync.tandem, 'pause')
    await untilState(sync.tandem, 'PAUSED')
  }
  return behind(sync, pause, 'resume')
}

async function behind(sync: Sync, before: () => Promise<void>, command: 'reverse' | 'resume'): Promise<Figures> {
  const { tandem, scale } = sync
  const seconds = Math.max(3, backlogSecondsInFull * scale)
  const load = { transactions: backlogTransactions, secondsMax: backlogLoadTimes * seconds, perSecond: null }
  await before()
  await using writer = await startWriter(sync, 'backlog', load)
  const writing = writer.go()
  await delay(seconds * 1_000)
  const began = performance.now()
  await send(tandem, command)
  let lagMax = 0
  for (;;) {
    const { state, lagTimeSeconds, failure } = await tandem.progress()
    if (failure) throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${tandem.output()}`)
    lagMax = Math.max(lagMax, lagTimeSeconds ?? 0)
    if (state === 'RUNNING' && lagTimeSeconds !== null && lagTimeSeconds < 1) break
    if (performance.now() - began > patienceMS) throw new Error(`the lag does not end after ${command}`)
    await delay(pollMS)
  }
  const caughtUpSeconds = (performance.now() - began) / 1_000
  const loadEnded = await Promise.race([writing.then(() => true), delay(1, false)])
  const written = await writing
  return {
    'backlog: s of load before': seconds,
    'backlog: transactions/s': written.transactions / written.seconds,
    'backlog: load until the end (1: yes)': loadEnded ? 0 : 1,
    'backlog: lag max s, as progress shows it': lagMax,
    'backlog: s from the command until lag < 1 s': caughtUpSeconds,
  }
}

async function commit(tandem: Tandem): Promise<void> {
  await untilCaughtUp(tandem)
  await commitUntilCanWrite(tandem)
  await untilState(tandem, 'COMMITTED')
}

async function send(tandem: Tandem, command: string): Promise<void> {
  const { status, body } = await tandem.post(command)
  if (status !== 200) throw new Error(`${command} answered ${JSON.stringify(body)}\n${tandem.output()}`)
}
