import { load, type Shape } from './load.ts'
import { peakMegabytesOf } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { empty, settle, startPair } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const fewInFull = 100_000
const manyInFull = 2_000_000

/** Peak memory of a sync with verification, for few documents and for twenty times as many. */
export async function benchMemory(shape: Shape, options: BenchOptions): Promise<Measured> {
  const peaks: number[] = []
  for (const count of [fewInFull, manyInFull]) {
    await using pair = await startPair(options)
    await load(pair.source, { ...shape, documents: Math.ceil(count * options.scale) })
    await empty(pair.destination)
    await settle(pair)
    await using tandem = await startReady(pair, options)
    await syncUntilCanCommit(tandem, { verification: { enabled: true } })
    peaks.push(peakMegabytesOf(tandem.pid))
    process.stderr.write(`  ${count} documents: ${peaks.at(-1)?.toFixed(0)} MB\n`)
  }
  const [few = Number.NaN, many = Number.NaN] = peaks
  const figures = { 'peak MB, few': few, 'peak MB, many': many, 'more for many, MB': many - few }
  return { figures, misses: missesOf(figures, { 'more for many, MB': { atMost: 100 } }) }
}
