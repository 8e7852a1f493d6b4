import { setTimeout as delay } from 'node:timers/promises'
import type { InitialCompareMethod } from '../src/domain/compare-method.ts'
import { startChild } from './child.ts'
import { load, type Shape } from './load.ts'
import { median, peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import type { ReadInput } from './raw-reader.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const pollMS = 20

/** The first verification by one method. */
interface FirstPass {
  /** Seconds from `start` until `canCommit`, when the verifier has compared everything once. */
  total: number
  /** The part of `total` that follows the end of the copy, in seconds. */
  verification: number
  /** Megabytes that both servers have sent during that part. */
  megabytes: number
  cpu: number
  serversCpu: number
  peakMB: number
}

interface Run {
  /** Seconds from `start` until `canCommit` without the verifier. */
  without: number
  binary: FirstPass
  hashes: FirstPass
  /** Seconds to read both clusters as raw bytes at the same time. */
  reading: number
}

/**
 * Measures the embedded verifier. Compares a sync with the verifier to the same sync without it, and the time of the
 * verification, by bytes and by hashes, to the time of one read of both clusters.
 */
export async function benchVerification(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale) }
  const documents = shape.collections * shape.documents
  await using pair = await startPair(options)
  await load(pair.source, shape)
  const all: Run[] = []
  for (let run = 0; run < options.runs; run++) {
    const figures: Partial<Run> = {}
    const turns = [
      async () => ({ without: await without(pair, options) }),
      async () => ({ binary: await withVerifier(pair, options, 'binary') }),
      async () => ({ hashes: await withVerifier(pair, options, 'toHashedIndexKey') }),
    ]
    for (let turn = 0; turn < turns.length; turn++) {
      await resetPair(pair)
      Object.assign(figures, await turns[(run + turn) % turns.length]?.())
    }
    const complete = { ...figures, reading: await read(pair, 2 * documents) } as Run
    const { binary, hashes, reading } = complete
    process.stderr.write(
      `  without ${complete.without.toFixed(2)} s, with ${binary.total.toFixed(2)} s, by hashes ${hashes.total.toFixed(2)} s, ` +
        `first pass ${binary.verification.toFixed(2)} s and ${hashes.verification.toFixed(2)} s, reading ${reading.toFixed(2)} s\n`,
    )
    all.push(complete)
  }
  const [binary, hashes] = [all.map((run) => run.binary), all.map((run) => run.hashes)].map(summaryOfRuns) as [
    FirstPass,
    FirstPass,
  ]
  const figures = {
    'documents on each side': documents,
    ratio: median(all.map((run) => run.without / run.binary.total)),
    'ratio to reading': median(all.map((run) => run.reading / run.binary.verification)),
    'ratio to reading, hashes': median(all.map((run) => run.reading / run.hashes.verification)),
    'copy s, verification off': median(all.map((run) => run.without)),
    'copy s, verification on': binary.total,
    'verification s': binary.verification,
    'verification s, hashes': hashes.verification,
    'verification MB': binary.megabytes,
    'verification MB, hashes': hashes.megabytes,
    'reading s': median(all.map((run) => run.reading)),
    'tandem CPU s, verification': binary.cpu,
    'tandem CPU s, hashes': hashes.cpu,
    'servers CPU s, verification': binary.serversCpu,
    'servers CPU s, hashes': hashes.serversCpu,
    'tandem peak MB': binary.peakMB,
    'tandem peak MB, hashes': hashes.peakMB,
  }
  const targets = { ratio: { atLeast: 0.6 }, 'ratio to reading': { atLeast: 0.5 } }
  return { figures, misses: missesOf(figures, targets) }
}

async function resetPair(pair: Pair): Promise<void> {
  await empty(pair.destination)
  await warmCache(pair.source)
  await waitUntilIdle(pair)
}

async function without(pair: Pair, options: BenchOptions): Promise<number> {
  await using instance = await startReady(pair, options)
  const began = performance.now()
  await syncUntilCanCommit(instance)
  return (performance.now() - began) / 1000
}

async function withVerifier(
  pair: Pair,
  options: BenchOptions,
  initialCompareMethod: InitialCompareMethod,
): Promise<FirstPass> {
  await using instance = await startReady(pair, options)
  const began = performance.now()
  const ready = syncUntilCanCommit(instance, { verification: { enabled: true, initialCompareMethod } })
  ready.catch(() => {})
  while ((await instance.progress()).info !== 'change event application') await delay(pollMS)
  const sentBefore = await sentBytes(pair)
  const stop = startMeter({ cpu: instance.pid, source: pair.source.pid, destination: pair.destination.pid })
  await ready
  const { wall, cpu, source, destination } = stop()
  const total = (performance.now() - began) / 1000
  return {
    total,
    verification: wall,
    megabytes: ((await sentBytes(pair)) - sentBefore) / 1e6,
    cpu,
    serversCpu: source + destination,
    peakMB: peakMegabytesOf(instance.pid),
  }
}

/** Bytes that both servers have sent since they were started, to all of their clients. */
async function sentBytes({ source, destination }: Pair): Promise<number> {
  let sum = 0
  for (const { client } of [source, destination]) {
    const { network } = await client.db('admin').command({ serverStatus: 1, metrics: 0 })
    sum += Number(network.bytesOut)
  }
  return sum
}

/**
 * Reads both servers directly after a sync, as the verifier does. The copy has just written the destination, and the
 * caches are not warmed again before this read.
 */
async function read(pair: Pair, documents: number): Promise<number> {
  const input: ReadInput = { cluster0: pair.source.linkUri, cluster1: pair.destination.linkUri, database }
  await using child = await startChild<{ documents: number }>('raw-reader', input)
  const stop = startMeter({})
  const result = await child.go()
  if (result.documents !== documents) throw new Error(`read ${result.documents} of ${documents} documents`)
  return stop().wall
}
