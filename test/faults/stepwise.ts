import { setTimeout as sleep } from 'node:timers/promises'
import type { Progress } from '../../src/domain/progress.ts'
import type { Clusters } from './clusters.ts'
import type { RunningMigration } from './migration.ts'
import type { RunningInstances } from './running-instances.ts'
import { countSegments, type SegmentCounts } from './segment-counts.ts'

/**
 * The course of a migration whose workload is a fixed number of steps: some before the copy, most while tandem copies and applies
 * changes, and some once it can commit. All steps are executed, regardless of the speed of the machine.
 */

/** A workload that is executed in steps. */
export interface SteppedWorkload {
  runSteps(count: number): Promise<void>
}

export interface StepwiseRun {
  instances: RunningInstances
  counts: { kills: number; faults: number; slowestRestartMS: number }
  /** Kills the first instance by kill -9 and restarts it. */
  killAndRestart(): Promise<void>
}

export interface StepwiseOptions {
  workload: SteppedWorkload
  /** Number of workload steps while tandem copies and applies changes. */
  steps: number
  /** Number of workload steps once tandem can commit. */
  lastSteps: number
  /** mongosyncIDs of the instances. Default: one instance. */
  ids?: readonly string[]
  faults?: (run: StepwiseRun) => Promise<void>
  /** Injects faults while the commit is under way. At least one instance must run afterwards. */
  commitFaults?: (run: StepwiseRun) => Promise<void>
  /** Called once all instances can commit, before the last steps. */
  whenReady?: () => Promise<void>
  /** Called after the last step, before the commit. */
  whenWritten?: () => Promise<void>
}

export interface StepwiseResult {
  kills: number
  faults: number
  slowestRestartMS: number
  /** Segments that were stored as done before a kill and were read again after it: always 0. */
  segmentsReadAgain: number
  /** Progress of the first instance at the end. */
  progress: Progress
}

const readySeconds = 180
const committedSeconds = 120

/** Starts the instances and brings them to COMMITTED. */
export async function migrateStepwise(
  { clusters, instances, problems }: RunningMigration<Clusters>,
  options: StepwiseOptions,
): Promise<StepwiseResult> {
  const { workload, ids = ['a'] } = options
  const counts = { kills: 0, faults: 0, slowestRestartMS: 0 }
  const doneBefore: SegmentCounts[] = []
  const run: StepwiseRun = {
    instances,
    counts,
    killAndRestart: async () => {
      const [id = ''] = ids
      await instances.kill(id)
      doneBefore.push(await countSegments(clusters.destination.uri))
      const from = performance.now()
      await instances.startAgain(id)
      counts.kills += 1
      counts.slowestRestartMS = Math.max(counts.slowestRestartMS, performance.now() - from)
    },
  }
  const hasEnded = ({ state }: Progress) => state === 'COMMITTED'
  const ready = () =>
    instances.allReach('ready to commit', (progress) => progress.canCommit || hasEnded(progress), readySeconds)

  await Promise.all(ids.map((id) => instances.start(id)))
  await instances.begin(...ids)
  const faults = options.faults?.(run) ?? Promise.resolve()
  faults.catch(() => {})
  await workload.runSteps(options.steps)
  instances.note('the steps are done')
  // If the injection of faults fails, the wait ends.
  await Promise.race([ready(), faults.then(() => new Promise<never>(() => {}))])
  await options.whenReady?.()
  await workload.runSteps(options.lastSteps)
  instances.note('the last steps are done')
  await options.whenWritten?.()
  await faults
  instances.note('the faults before the commit are over')
  await ready()
  await Promise.all(ids.map((id) => instances.command(id, 'commit')))
  await options.commitFaults?.(run)
  await instances.allReach('COMMITTED', hasEnded, committedSeconds)
  const segmentsReadAgain = countReadAgain(await countSegments(clusters.destination.uri), doneBefore)
  if (segmentsReadAgain > 0) problems.push(`${segmentsReadAgain} finished segments were read again`)
  return { ...counts, segmentsReadAgain, progress: await instances.get(ids[0] ?? '').progress() }
}

function countReadAgain(now: SegmentCounts, before: readonly SegmentCounts[]): number {
  const again = new Set<string>()
  for (const counts of before) {
    for (const [id, { done, attempts }] of counts) {
      const later = now.get(id)
      if (done && later && later.attempts > attempts) again.add(id)
    }
  }
  return again.size
}

/** Kills and restarts the instance at `count` random moments. */
export function kills(count: number, betweenMS: number) {
  return async (run: StepwiseRun): Promise<void> => {
    for (let kill = 0; kill < count; kill++) {
      await sleep(run.instances.random.int(0, betweenMS))
      await run.killAndRestart()
    }
  }
}
