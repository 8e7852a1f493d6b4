import type { Progress } from '../src/domain/progress.ts'
import { compareClusters } from '../test/support/compare.ts'
import type { CutoverCase } from './cutover-cases.ts'
import { commitUntilCanWrite, foretold, untilCaughtUp, untilState } from './cutover-commit.ts'
import { overRuns, peakMegabytesOf } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { empty, type Pair, settle, startPair } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const roundTripsAllowed = 20
/** An estimate is right when it is off by no more than the larger of these two. */
const estimateOffSeconds = 2
const estimateOffShare = 0.5

export interface CutoverOptions extends BenchOptions {
  /** Replaces what the case says, where it is given. */
  roundTripMS: number | undefined
}

/** From `commit` until applications may write on the destination, with verification, after what the case does to the sync. */
export async function benchCutover(what: CutoverCase, options: CutoverOptions): Promise<Measured> {
  const roundTripMS = options.roundTripMS ?? what.servers?.roundTripMS ?? 0
  await using pair = await startPair({ ...options, ...what.servers, roundTripMS })
  const all: Record<string, number>[] = []
  for (let run = 0; run < options.runs; run++) {
    // What only fills the source is done once; what writes during the sync begins with empty clusters.
    if (run === 0 || what.work) {
      await empty(pair.source)
      await what.fill(pair.source, options.scale)
    }
    await empty(pair.destination)
    await settle(pair)
    const figures = await measure(what, pair, options)
    process.stderr.write(`  canWrite ${figures['commit to canWrite s']?.toFixed(2)} s after commit\n`)
    all.push(figures)
  }
  const figures = overRuns(all)
  const atMost = what.targetSeconds + (roundTripsAllowed * roundTripMS) / 1000
  const targets = { 'commit to canWrite s': { atMost }, 'estimate beyond tolerance s': { atMost: 0 } }
  return { figures: { 'target s': atMost, ...figures }, misses: missesOf(figures, targets) }
}

async function measure(what: CutoverCase, pair: Pair, options: CutoverOptions): Promise<Record<string, number>> {
  await using tandem = await startReady(pair, options)
  await syncUntilCanCommit(tandem, { verification: { enabled: true }, ...what.start })
  const worked = (await what.work?.({ pair, tandem }, options.scale)) ?? {}
  const written = performance.now()
  const before: Progress = await (what.commitsAtOnce ? tandem.progress() : untilCaughtUp(tandem))
  const waitedSeconds = (performance.now() - written) / 1000
  const { verificationLagSeconds, estimatedSeconds } = foretold(before)
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
    ...worked,
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
