import { setTimeout as delay } from 'node:timers/promises'
import type { Progress } from '../src/domain/progress.ts'
import type { BurstWriterInput } from './burst-writer.ts'
import { type Child, startChild } from './child.ts'
import { assertSameBytes, countOf, hashOf } from './content.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import type { Mix } from './operations.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, type Server, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const operationsInFull = 200_000
const writers = 2
export const burstCollection = 'burst'
const pollMS = 5
const drainPatienceMS = 300_000

interface Direct {
  seconds: number
  cpu: number
}

interface Followed {
  /** Seconds from the first write on the source until the destination's content is equal. */
  seconds: number
  /** Seconds from the last write on the source until the destination's content is equal. */
  drain: number
  cpu: number
  sourceCpu: number
  destinationCpu: number
  peakMB: number
  /** Documents written on the destination, including the few of tandem's own metadata. */
  writes: number
}

interface Verified {
  /** Seconds from the first write on the source until the destination holds as many documents as the source. */
  seconds: number
  cpu: number
  sourceCpu: number
  destinationCpu: number
  peakMB: number
  /** Seconds from `commit` until `canWrite`. `commit` is sent as soon as `progress` shows no lag and `canCommit`. */
  cutover: number
}

/**
 * Two writers run the same operations at full speed in three variants: directly on the destination while nothing else
 * runs, on the source while tandem replicates without verification, and on the source while tandem also verifies.
 */
export async function benchBurst(options: BenchOptions, mix: Mix): Promise<Measured> {
  const operations = Math.ceil(operationsInFull * options.scale)
  await using pair = await startPair(options)
  const direct: Direct[] = []
  const followed: Followed[] = []
  const verified: Verified[] = []
  const variants = [
    async () => direct.push(await writeDirectly(pair, operations, mix)),
    async () => followed.push(await follow(pair, operations, options, mix)),
    async () => verified.push(await followVerified(pair, operations, options, mix)),
  ]
  for (let run = 0; run < options.runs; run++) {
    for (const runVariant of run % 2 === 0 ? variants : variants.toReversed()) {
      for (const server of [pair.source, pair.destination]) await empty(server)
      await pair.source.client.db(database).createCollection(burstCollection)
      await waitUntilIdle(pair)
      await runVariant()
    }
    const seconds = [direct, followed, verified].map((runs) => `${runs.at(-1)?.seconds.toFixed(2)} s`)
    process.stderr.write(
      `  direct ${seconds[0]}, tandem ${seconds[1]}, with verification ${seconds[2]}, ` +
        `canWrite ${verified.at(-1)?.cutover.toFixed(2)} s after commit\n`,
    )
  }
  return rowOf(operations, summaryOfRuns(direct), summaryOfRuns(followed), summaryOfRuns(verified), mix)
}

function rowOf(operations: number, direct: Direct, ours: Followed, verified: Verified, mix: Mix): Measured {
  const figures = {
    operations,
    ratio: direct.seconds / ours.seconds,
    'direct s': direct.seconds,
    'tandem s until equal': ours.seconds,
    'drain s after last write': ours.drain,
    'direct ops/s': operations / direct.seconds,
    'tandem ops/s': operations / ours.seconds,
    'tandem CPU s': ours.cpu,
    'source CPU s': ours.sourceCpu,
    'destination CPU s': ours.destinationCpu,
    'destination CPU s, direct': direct.cpu,
    'tandem peak MB': ours.peakMB,
    'destination writes per operation': ours.writes / operations,
    'ratio of destination CPU, direct to tandem': direct.cpu / ours.destinationCpu,
    'ratio of speed, verification on to off': ours.seconds / verified.seconds,
    'verified s until equal counts': verified.seconds,
    'verified ops/s': operations / verified.seconds,
    'verified, commit to canWrite s': verified.cutover,
    'verified, tandem CPU s': verified.cpu,
    'verified, source CPU s': verified.sourceCpu,
    'verified, destination CPU s': verified.destinationCpu,
    'verified, tandem peak MB': verified.peakMB,
  }
  const always = {
    'ratio of speed, verification on to off': { atLeast: 0.8 },
    'verified, commit to canWrite s': { atMost: 3 },
    'tandem peak MB': { atMost: 300 },
    'verified, tandem peak MB': { atMost: 300 },
  }
  // tandem combines the changes of a hot document into few writes. `hot` measures how much CPU of the destination this
  // saves, so its target is a ratio of CPU, not of speed.
  const own =
    mix === 'mixed' ? { ratio: { atLeast: 0.6 } } : { 'ratio of destination CPU, direct to tandem': { atLeast: 3 } }
  const misses = missesOf(figures, { ...own, ...always })
  return { figures, misses }
}

async function writeDirectly({ destination }: Pair, operations: number, mix: Mix): Promise<Direct> {
  await destination.client.db(database).createCollection(burstCollection)
  await using writerPair = await writersTo(destination, operations, mix)
  const stop = startMeter({ cpu: destination.pid })
  await writerPair.go()
  const { wall, cpu } = stop()
  return { seconds: wall, cpu }
}

async function follow(pair: Pair, operations: number, options: BenchOptions, mix: Mix): Promise<Followed> {
  const { source, destination } = pair
  await using writerPair = await writersTo(source, operations, mix)
  await using tandem = await startReady(pair, options)
  await syncUntilCanCommit(tandem)
  await waitUntilIdle(pair)
  const before = await writesOn(destination)
  const stop = startMeter({ cpu: tandem.pid, sourceCpu: source.pid, destinationCpu: destination.pid })
  await writerPair.go()
  const written = stop()
  const { wall, ...cpu } = await whenEqual(pair, stop)
  const peakMB = peakMegabytesOf(tandem.pid)
  await assertSameBytes(pair, burstCollection)
  const writes = (await writesOn(destination)) - before
  return { seconds: wall, drain: wall - written.wall, ...cpu, peakMB, writes }
}

/**
 * Measures the burst with the verifier on, and commits directly after it. Any other work between lag 0 and the commit
 * would give the verifier additional time. Therefore only the counts are compared before the commit, and the bytes after it.
 */
async function followVerified(pair: Pair, operations: number, options: BenchOptions, mix: Mix): Promise<Verified> {
  const { source, destination } = pair
  await using writerPair = await writersTo(source, operations, mix)
  await using tandem = await startReady(pair, options)
  await syncUntilCanCommit(tandem, { verification: { enabled: true } })
  await waitUntilIdle(pair)
  const stop = startMeter({ cpu: tandem.pid, sourceCpu: source.pid, destinationCpu: destination.pid })
  await writerPair.go()
  const deadline = Date.now() + drainPatienceMS
  const wanted = await countOf(source, [burstCollection])
  while ((await countOf(destination, [burstCollection])) !== wanted) {
    if (Date.now() > deadline)
      throw new Error(
        `the destination did not reach the source's document count ${drainPatienceMS / 1000} s after the last write`,
      )
    await delay(pollMS)
  }
  const equal = stop()
  const isReady = ({ canCommit, lagTimeSeconds }: Progress): boolean => canCommit === true && lagTimeSeconds === 0
  await tandem.waitFor(isReady, { timeoutSeconds: drainPatienceMS / 1000, what: 'no lag' })
  const began = performance.now()
  const answer = await tandem.post('commit')
  if (answer.status !== 200) throw new Error(`commit answered ${JSON.stringify(answer.body)}`)
  await tandem.waitFor(({ canWrite }) => canWrite === true, {
    timeoutSeconds: drainPatienceMS / 1000,
    what: 'canWrite',
  })
  const cutover = (performance.now() - began) / 1000
  const { wall: seconds } = equal
  const { wall: _, ...cpu } = stop()
  const peakMB = peakMegabytesOf(tandem.pid)
  await assertSameBytes(pair, burstCollection)
  return { seconds, ...cpu, peakMB, cutover }
}

/**
 * Returns the meter's reading when both contents are equal. Equal counts, which are cheap to query, only trigger the
 * check; the digest of every byte decides. The meter is read before each digest, so the figure does not include the
 * digest that finds the contents equal. It includes the earlier digests that found a difference. The server blocks
 * writes while it computes a digest, so a digest describes the content at one moment.
 */
async function whenEqual<Reading>({ source, destination }: Pair, read: () => Reading): Promise<Reading> {
  const deadline = Date.now() + drainPatienceMS
  const wantedCount = await countOf(source, [burstCollection])
  let wantedHash: string | null = null
  while (Date.now() < deadline) {
    if ((await countOf(destination, [burstCollection])) === wantedCount) {
      const reading = read()
      const hash = await hashOf(destination)
      wantedHash ??= await hashOf(source)
      if (hash === wantedHash) return reading
    }
    await delay(pollMS)
  }
  throw new Error(`the destination was not equal ${drainPatienceMS / 1000} s after the last write`)
}

async function writesOn({ client }: Server): Promise<number> {
  const { opcounters } = await client.db('admin').command({ serverStatus: 1 })
  return Number(opcounters.insert) + Number(opcounters.update) + Number(opcounters.delete)
}

/** Starts both writers, which wait for `go`. The collection that they write to must exist. */
export async function writersTo(
  { uri }: Pick<Server, 'uri'>,
  operations: number,
  mix: Mix,
  { keyed = false }: { keyed?: boolean } = {},
): Promise<AsyncDisposable & { go(): Promise<void> }> {
  const share = Math.ceil(operations / writers)
  const inputs: BurstWriterInput[] = Array.from({ length: writers }, (_, writer) => ({
    ...{ uri, database, collection: burstCollection, writer, mix, keyed },
    operations: Math.min(share, operations - writer * share),
  }))
  const children: Child<object>[] = await Promise.all(inputs.map((input) => startChild<object>('burst-writer', input)))
  return {
    go: async () => {
      await Promise.all(children.map((child) => child.go()))
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(children.map((child) => child[Symbol.asyncDispose]()))
    },
  }
}
