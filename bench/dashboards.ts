import { setTimeout as delay } from 'node:timers/promises'
import { bytesPerSecondMin } from '../src/domain/limits.ts'
import type { Tandem } from '../test/support/tandem-process.ts'
import { startSync } from '../test/support/tandem-process.ts'
import { startChild } from './child.ts'
import type { ViewersInput, ViewersResult } from './dashboard-viewers.ts'
import { load, type Shape } from './load.ts'
import { median, startMeter } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { empty, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const viewers = 200
const windowSeconds = 12
/**
 * The rate limit of the copy. The copy then takes longer than all windows together, and the instance does the same amount
 * of work for it in each window.
 */
const steadyBytesPerSecond = 10_000_000
/**
 * How long the viewers stay while a whole copy is measured. Longer than any copy; the bench ends them after the copy.
 */
const foreverSeconds = 3_600

/** Measures what 200 open dashboards cost an instance while it copies: its CPU, and the time of the copy. */
export async function benchDashboards(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale) }
  await using pair = await startPair(options)
  await load(pair.source, shape)
  await resetPair(pair)
  const cpu = await steadyCpu(pair, options)
  const seconds: Record<'with' | 'without', number[]> = { with: [], without: [] }
  for (let run = 0; run < options.runs; run++) {
    for (const which of run % 2 === 0 ? (['without', 'with'] as const) : (['with', 'without'] as const)) {
      await resetPair(pair)
      seconds[which].push(await copySeconds(pair, options, which === 'with' ? viewers : 0))
      process.stderr.write(`  copy ${which}: ${seconds[which].at(-1)?.toFixed(2)} s\n`)
    }
  }
  const figures = {
    dashboards: viewers,
    'CPU % of a core, with': cpu.with,
    'CPU % of a core, without': cpu.without,
    'CPU % of a core for the dashboards': cpu.with - cpu.without,
    'samples per dashboard and second': cpu.samplesPerSecond,
    'copy time without / with dashboards': median(seconds.without) / median(seconds.with),
    'copy s, with': median(seconds.with),
    'copy s, without': median(seconds.without),
  }
  return { figures, misses: missesOf(figures, { 'CPU % of a core for the dashboards': { atMost: 10 } }) }
}

/** Measures the instance's CPU during one copy, in alternating windows without and with all viewers. */
async function steadyCpu(pair: Pair, options: BenchOptions) {
  await using instance = await startReady(pair, options)
  const limits = JSON.stringify({ bytesPerSecond: Math.max(bytesPerSecondMin, steadyBytesPerSecond * options.scale) })
  await fetch(`${instance.url}/api/v1/limits`, { method: 'PATCH', body: limits })
  await startSync(instance, { verification: { enabled: false } })
  const seconds = windowSeconds
  const shares: Record<'with' | 'without', number[]> = { with: [], without: [] }
  const samplesPerSecond: number[] = []
  await delay(seconds * 1000) // Exclude the start of the sync and the first compilation from the measurement.
  for (let run = 0; run < options.runs; run++) {
    const alone = meter(instance)
    await delay(seconds * 1000)
    shares.without.push(alone())
    await using child = await startViewers(instance, viewers, seconds)
    const watched = meter(instance)
    const { samples, answers, megabytes } = await child.go()
    shares.with.push(watched())
    samplesPerSecond.push(samples / viewers / seconds)
    const received = `${samples} samples and ${answers} answers, ${megabytes.toFixed(1)} MB`
    process.stderr.write(
      `  CPU ${shares.without.at(-1)?.toFixed(1)} % without viewers, ${shares.with.at(-1)?.toFixed(1)} % with viewers, who received ${received}\n`,
    )
  }
  const { canCommit } = await instance.progress()
  if (canCommit) throw new Error('the copy ended before the last window')
  return {
    with: median(shares.with),
    without: median(shares.without),
    samplesPerSecond: median(samplesPerSecond),
  }
}

/** Returns a function that reads the instance's CPU use since this call, as a percentage of one core. */
function meter({ pid }: Tandem): () => number {
  const stop = startMeter({ cpu: pid })
  return () => {
    const { wall, cpu } = stop()
    return (cpu / wall) * 100
  }
}

async function copySeconds(pair: Pair, options: BenchOptions, viewerCount: number): Promise<number> {
  await using instance = await startReady(pair, options)
  await using child = await startViewers(instance, viewerCount, foreverSeconds)
  if (viewerCount > 0) child.go().catch(() => {}) // The child is stopped before it returns a result.
  const stop = startMeter({ cpu: instance.pid })
  await syncUntilCanCommit(instance)
  return stop().wall
}

async function startViewers(instance: Tandem, count: number, seconds: number) {
  const input: ViewersInput = { url: instance.url, viewers: count, seconds }
  return await startChild<ViewersResult>('dashboard-viewers', input)
}

async function resetPair(pair: Pair): Promise<void> {
  await empty(pair.destination)
  await warmCache(pair.source)
  await waitUntilIdle(pair)
}
