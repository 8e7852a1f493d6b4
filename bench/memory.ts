import { load, type Shape } from './load.ts'
import { peakMegabytesOf } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { empty, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

/** Numbers of documents with `--scale 1`. */
const fewInFull = 100_000
const manyInFull = 2_000_000

/** Measures the peak memory of a sync with verification, for few documents and for twenty times as many. */
export async function benchMemory(shape: Shape, options: BenchOptions): Promise<Measured> {
  const peaks: number[] = []
  for (const count of [fewInFull, manyInFull]) {
    await using pair = await startPair(options)
    const documents = Math.ceil(count * options.scale)
    await load(pair.source, { ...shape, documents })
    await empty(pair.destination)
    await waitUntilIdle(pair)
    await using tandem = await startReady(pair, options)
    await syncUntilCanCommit(tandem, { verification: { enabled: true } })
    peaks.push(peakMegabytesOf(tandem.pid))
    process.stderr.write(`  ${documents} documents: ${peaks.at(-1)?.toFixed(0)} MB\n`)
  }
  const [few = Number.NaN, many = Number.NaN] = peaks
  const figures = { 'peak MB, few': few, 'peak MB, many': many, 'peak MB, many minus few': many - few }
  return { figures, misses: missesOf(figures, { 'peak MB, many minus few': { atMost: 100 } }) }
}
