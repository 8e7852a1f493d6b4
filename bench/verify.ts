import { startChild } from './child.ts'
import { load, type Shape } from './load.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import { copyRaw } from './older-copy.ts'
import type { ReadInput } from './raw-reader.ts'
import { type Measured, missesOf } from './report.ts'
import { database, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import type { BenchOptions } from './tandem-run.ts'

interface Effort {
  seconds: number
  cpu: number
  serverCpu: number
  peakMB: number
}

const programs = { reading: 'raw-reader', verify: 'audit-runner' } as const
type Name = keyof typeof programs

/** Measures how fast `tandem verify` compares two equal clusters, relative to only reading both. */
export async function benchVerify(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale) }
  const documents = shape.collections * shape.documents
  await using pair = await startPair(options)
  await load(pair.source, shape)
  // Loading the documents a second time would give them other `_id`s.
  await copyRaw(pair)
  const efforts: Record<Name, Effort[]> = { reading: [], verify: [] }
  for (let run = 0; run < options.runs; run++) {
    const order: Name[] = run % 2 === 0 ? ['reading', 'verify'] : ['verify', 'reading']
    for (const name of order) {
      await Promise.all([warmCache(pair.source), warmCache(pair.destination)])
      await waitUntilIdle(pair)
      const effort = await measure(name, pair, 2 * documents)
      process.stderr.write(`  ${name} ${effort.seconds.toFixed(2)} s\n`)
      efforts[name].push(effort)
    }
  }
  return rowOf(shape, documents, summaryOfRuns(efforts.reading), summaryOfRuns(efforts.verify))
}

async function measure(name: Name, { source, destination }: Pair, documents: number): Promise<Effort> {
  const input: ReadInput = { cluster0: source.linkUri, cluster1: destination.linkUri, database }
  await using child = await startChild<{ documents: number }>(programs[name], input)
  const stop = startMeter({ cpu: child.pid, one: source.pid, other: destination.pid })
  const read = await child.go()
  const { wall, cpu, one, other } = stop()
  if (read.documents !== documents) throw new Error(`${name} read ${read.documents} of ${documents} documents`)
  return { seconds: wall, cpu, serverCpu: one + other, peakMB: peakMegabytesOf(child.pid) }
}

function rowOf(shape: Shape, documents: number, reading: Effort, verify: Effort): Measured {
  const megabytes = (2 * documents * shape.documentBytes) / 1e6
  const figures = {
    'documents on each side': documents,
    'megabytes on both': megabytes,
    ratio: reading.seconds / verify.seconds,
    'reading s': reading.seconds,
    'verify s': verify.seconds,
    'reading MB/s': megabytes / reading.seconds,
    'verify MB/s': megabytes / verify.seconds,
    'reading CPU s': reading.cpu,
    'verify CPU s': verify.cpu,
    'servers CPU s, reading': reading.serverCpu,
    'servers CPU s, verify': verify.serverCpu,
    'reading peak MB': reading.peakMB,
    'verify peak MB': verify.peakMB,
  }
  return { figures, misses: missesOf(figures, { 'verify peak MB': { atMost: 250 } }) }
}
