import type { Document } from 'mongodb'
import { metadataDatabase } from '../src/domain/namespace.ts'
import { startChild } from './child.ts'
import { assertSameHash } from './content.ts'
import { load, type Shape } from './load.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import { changeSource, copyRaw } from './older-copy.ts'
import type { ReadInput } from './raw-reader.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, type Server, startPair, waitUntilIdle, warmCache } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

/** Number of writes that the copy lacks, with `--scale 1`. */
const writesInFull = 200_000

/** The first round does not count, because it uses memory and disk blocks for the first time (see copy.ts). */
const warmUpRounds = 1

interface Effort {
  seconds: number
  cpu: number
  sourceCpu: number
  destinationCpu: number
  peakMB: number
  /** Size of the oplog entries that the destination wrote, including those for tandem's own metadata. */
  oplogMB: number
  /** Size of what the destination wrote to its journal, after compression. */
  journalMB: number
}

/**
 * Measures `existingData: converge` with a destination that is equal, and with one that lacks the last writes. For
 * comparison, each round also reads both clusters without comparing them, and copies the source to an empty destination.
 */
export async function benchConverge(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale) }
  const writes = Math.ceil(writesInFull * options.scale)
  await using pair = await startPair(options)
  await load(pair.source, shape)
  const rounds: Record<string, number>[] = []
  for (let round = -warmUpRounds; round < options.runs; round++) {
    const figures = await measureRound(pair, shape, writes, options)
    if (round >= 0) rounds.push(figures)
  }
  const figures = summaryOfRuns(rounds)
  const targets = {
    'ratio of time, reading to converging equal data': { atLeast: 0.7 },
    'ratio of bytes, written to differing': { atMost: 1.5 },
    'ratio of peaks, converging to copy': { atMost: 1 },
  }
  return { figures, misses: missesOf(figures, targets) }
}

async function measureRound(
  pair: Pair,
  shape: Shape,
  writes: number,
  options: BenchOptions,
): Promise<Record<string, number>> {
  const { source, destination } = pair
  const existing = { existingData: 'converge' }
  await empty(destination)
  await copyRaw(pair)
  const documents = await source.client.db(database).collection('c0').estimatedDocumentCount()
  const reading = await readBoth(pair, 2 * documents)
  const equal = await converge(pair, options, existing)
  const differingMB = (await changeSource(source, shape, writes)) / 1e6
  const changed = await converge(pair, options, existing)
  await assertSameHash(pair)
  await empty(destination)
  const copy = await converge(pair, options, {})
  await assertSameHash(pair)
  const seconds = Object.entries({ reading, equal, changed, copy }).map(
    ([name, one]) => `${name} ${one.seconds.toFixed(2)} s`,
  )
  process.stderr.write(`  ${seconds.join(', ')}\n`)
  return {
    documents,
    writes,
    'ratio of time, reading to converging equal data': reading.seconds / equal.seconds,
    'ratio of time, copy to converging': copy.seconds / changed.seconds,
    'ratio of bytes, written to differing': changed.oplogMB / differingMB,
    'ratio of peaks, converging to copy': changed.peakMB / copy.peakMB,
    'reading both s': reading.seconds,
    ...named('equal data', equal),
    'MB that differed': differingMB,
    ...named('changed data', changed),
    ...named('copy', copy),
  }
}

function named(what: string, effort: Effort): Record<string, number> {
  return {
    [`${what}: s`]: effort.seconds,
    [`${what}: tandem CPU s`]: effort.cpu,
    [`${what}: source CPU s`]: effort.sourceCpu,
    [`${what}: destination CPU s`]: effort.destinationCpu,
    [`${what}: peak MB`]: effort.peakMB,
    [`${what}: oplog MB`]: effort.oplogMB,
    [`${what}: journal MB`]: effort.journalMB,
  }
}

/** Reads both clusters at the same time and discards the documents. */
async function readBoth(pair: Pair, documents: number): Promise<{ seconds: number }> {
  await prepare(pair)
  const input: ReadInput = { cluster0: pair.source.uri, cluster1: pair.destination.uri, database }
  await using child = await startChild<{ documents: number }>('raw-reader', input)
  const stop = startMeter({})
  const read = await child.go()
  const { wall } = stop()
  if (read.documents !== documents) throw new Error(`reading returned ${read.documents} of ${documents} documents`)
  return { seconds: wall }
}

/** Measures a sync from `start` until `canCommit`. Then removes its write block and its metadata, but no documents. */
async function converge(pair: Pair, options: BenchOptions, start: Record<string, unknown>): Promise<Effort> {
  const { source, destination } = pair
  await prepare(pair)
  const effort = await measure(pair, options, start)
  for (const { client } of [source, destination]) {
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
    await client.db(metadataDatabase).dropDatabase()
  }
  return effort
}

async function measure(pair: Pair, options: BenchOptions, start: Record<string, unknown>): Promise<Effort> {
  const { source, destination } = pair
  await using tandem = await startReady(pair, options)
  const before = await writtenOn(destination)
  const stop = startMeter({ cpu: tandem.pid, sourceCpu: source.pid, destinationCpu: destination.pid })
  await syncUntilCanCommit(tandem, start)
  const { wall, ...cpu } = stop()
  const peakMB = peakMegabytesOf(tandem.pid)
  const after = await writtenOn(destination)
  const journalMB = (after.journal - before.journal) / 1e6
  return {
    seconds: wall,
    ...cpu,
    peakMB,
    oplogMB: (await oplogBytesSince(destination, before.newest)) / 1e6,
    journalMB,
  }
}

async function prepare(pair: Pair): Promise<void> {
  await Promise.all([warmCache(pair.source), warmCache(pair.destination)])
  await waitUntilIdle(pair)
}

async function writtenOn({ client }: Server): Promise<{ newest: unknown; journal: number }> {
  const oplog = client.db('local').collection('oplog.rs')
  const [newest, status] = await Promise.all([
    oplog
      .find({}, { projection: { ts: 1 } })
      .sort({ $natural: -1 })
      .limit(1)
      .next(),
    client.db('admin').command({ serverStatus: 1 }),
  ])
  return { newest: newest?.['ts'], journal: Number(status['wiredTiger'].log['log bytes written']) }
}

async function oplogBytesSince({ client }: Server, newest: unknown): Promise<number> {
  const pipeline = [
    { $match: { ts: { $gt: newest } } },
    { $group: { _id: null, bytes: { $sum: { $bsonSize: '$$ROOT' } } } },
  ]
  const [sum] = await client.db('local').collection('oplog.rs').aggregate<Document>(pipeline).toArray()
  return Number(sum?.['bytes'] ?? 0)
}
