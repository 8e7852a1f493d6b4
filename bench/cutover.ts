import type { Progress } from '../src/domain/progress.ts'
import { compareClusters } from '../test/support/compare.ts'
import type { CutoverCase } from './cutover-cases.ts'
import { commitForecast, commitUntilCanWrite, untilCaughtUp, untilState } from './cutover-commit.ts'
import type { Link } from './delaying-proxy.ts'
import { peakMegabytesOf, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { empty, type Pair, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const roundTripsAllowed = 20
/** An estimate is accepted if its error is at most this many seconds, or at most this share of the measured time. */
const estimateOffSeconds = 2
const estimateOffShare = 0.5

/**
 * Measures the time from `commit` until applications may write on the destination. Verification is on. The commit
 * follows the writes of the case.
 */
export async function benchCutover(cutoverCase: CutoverCase, options: BenchOptions): Promise<Measured> {
  const link = { ...cutoverCase.servers?.link, ...definedOf(options.link) }
  await using pair = await startPair({ ...options, ...cutoverCase.servers, link })
  const all: Record<string, number>[] = []
  for (let run = 0; run < options.runs; run++) {
    // A case that only fills the source does so once. A case that writes during the sync starts every run with empty
    // clusters.
    if (run === 0 || cutoverCase.workload) {
      await empty(pair.source)
      await cutoverCase.fill(pair.source, options.scale)
    }
    await empty(pair.destination)
    await waitUntilIdle(pair)
    const figures = await measure(cutoverCase, pair, options)
    process.stderr.write(`  canWrite ${figures['commit to canWrite s']?.toFixed(2)} s after commit\n`)
    all.push(figures)
  }
  const figures = summaryOfRuns(all)
  const atMost = cutoverCase.targetSeconds + (roundTripsAllowed * (link.roundTripMS ?? 0)) / 1000
  const targets = { 'commit to canWrite s': { atMost }, 'estimate beyond tolerance s': { atMost: 0 } }
  return { figures: { 'target s': atMost, ...figures }, misses: missesOf(figures, targets) }
}

async function measure(cutoverCase: CutoverCase, pair: Pair, options: BenchOptions): Promise<Record<string, number>> {
  await using tandem = await startReady(pair, options)
  await syncUntilCanCommit(tandem, { verification: { enabled: true }, ...cutoverCase.start })
  const workloadFigures = (await cutoverCase.workload?.({ pair, tandem }, options.scale)) ?? {}
  const written = performance.now()
  const before: Progress = await (cutoverCase.commitsAtOnce ? tandem.progress() : untilCaughtUp(tandem))
  const waitedSeconds = (performance.now() - written) / 1000
  const { verificationLagSeconds, estimatedSeconds } = commitForecast(before)
  const { answeredSeconds, canWriteSeconds } = await commitUntilCanWrite(tandem)
  await untilState(tandem, 'COMMITTED')
  const peakMB = peakMegabytesOf(tandem.pid)
  const { documents, collections, equal, differences } = await compareClusters(pair.source.uri, pair.destination.uri)
  if (!equal) throw new Error(`the clusters differ after the commit:\n${differences.join('\n')}`)
  return {
    'commit to canWrite s': canWriteSeconds,
    'commit answered s': answeredSeconds,
    ...(estimatedSeconds === null ? {} : estimate(estimatedSeconds, canWriteSeconds)),
    'wait for lag 0 s': waitedSeconds,
    'lag s at commit': before.lagTimeSeconds ?? Number.NaN,
    'verification lag s at commit': verificationLagSeconds,
    'canCommit at commit': Number(before.canCommit),
    ...workloadFigures,
    ...{ collections, documents },
    'tandem peak MB': peakMB,
  }
}

function estimate(estimatedSeconds: number, seconds: number): Record<string, number> {
  const tolerance = Math.max(estimateOffSeconds, seconds * estimateOffShare)
  return {
    'estimated s': estimatedSeconds,
    'estimate beyond tolerance s': Math.max(0, Math.abs(estimatedSeconds - seconds) - tolerance),
  }
}

/** Returns the values of the link that the command line sets. They replace those of the case. */
function definedOf(link: Link): Link {
  return Object.fromEntries(Object.entries(link).filter(([, value]) => value !== undefined))
}
