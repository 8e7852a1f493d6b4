import { setTimeout as delay } from 'node:timers/promises'
import { startChild } from './child.ts'
import { load, type Shape } from './load.ts'
import { median, peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import type { ReadInput } from './raw-reader.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const pollMS = 20

interface Run {
  /** Seconds from `start` until `canCommit` without the verifier. */
  without: number
  /** Seconds from `start` until `canCommit` with the verifier, which has then compared everything once. */
  withVerification: number
  /** The part of `withVerification` that follows the end of the copy, in seconds. */
  verification: number
  cpu: number
  serversCpu: number
  peakMB: number
  /** Seconds to read both clusters as raw bytes at the same time. */
  reading: number
}

/**
 * Measures the embedded verifier. Compares a sync with the verifier to the same sync without it, and the time of the
 * verification to the time of one read of both clusters.
 */
export async function benchVerification(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale) }
  const documents = shape.collections * shape.documents
  await using pair = await startPair(options)
  await load(pair.source, shape)
  const all: Run[] = []
  for (let run = 0; run < options.runs; run++) {
    const turns = [() => without(pair, options), () => withVerifier(pair, options)] as const
    await resetPair(pair)
    const first = await turns[run % 2 === 0 ? 0 : 1]()
    await resetPair(pair)
    const second = await turns[run % 2 === 0 ? 1 : 0]()
    const figures = { ...first, ...second, reading: await read(pair, 2 * documents) } as Run
    process.stderr.write(
      `  without ${figures.without.toFixed(2)} s, with ${figures.withVerification.toFixed(2)} s, reading ${figures.reading.toFixed(2)} s\n`,
    )
    all.push(figures)
  }
  const merged = summaryOfRuns(all)
  const figures = {
    'documents on each side': documents,
    ratio: median(all.map((run) => run.without / run.withVerification)),
    'ratio to reading': median(all.map((run) => run.reading / run.verification)),
    'copy s, verification off': merged.without,
    'copy s, verification on': merged.withVerification,
    'verification s': merged.verification,
    'reading s': merged.reading,
    'tandem CPU s, verification': merged.cpu,
    'servers CPU s, verification': merged.serversCpu,
    'tandem peak MB': merged.peakMB,
  }
  const targets = { ratio: { atLeast: 0.6 }, 'ratio to reading': { atLeast: 0.5 } }
  return { figures, misses: missesOf(figures, targets) }
}

async function resetPair(pair: Pair): Promise<void> {
  await empty(pair.destination)
  await warmCache(pair.source)
  await waitUntilIdle(pair)
}

async function without(pair: Pair, options: BenchOptions): Promise<Pick<Run, 'without'>> {
  await using instance = await startReady(pair, options)
  const began = performance.now()
  await syncUntilCanCommit(instance)
  return { without: (performance.now() - began) / 1000 }
}

async function withVerifier(pair: Pair, options: BenchOptions): Promise<Omit<Run, 'without' | 'reading'>> {
  await using instance = await startReady(pair, options)
  const began = performance.now()
  const ready = syncUntilCanCommit(instance, { verification: { enabled: true } })
  ready.catch(() => {})
  while ((await instance.progress()).info !== 'change event application') await delay(pollMS)
  const stop = startMeter({ cpu: instance.pid, source: pair.source.pid, destination: pair.destination.pid })
  await ready
  const { wall, cpu, source, destination } = stop()
  return {
    withVerification: (performance.now() - began) / 1000,
    verification: wall,
    cpu,
    serversCpu: source + destination,
    peakMB: peakMegabytesOf(instance.pid),
  }
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
