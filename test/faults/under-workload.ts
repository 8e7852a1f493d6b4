import { Random } from '../support/random.ts'
import { seedData } from '../support/seed-data.ts'
import { createWorkload } from '../support/workload.ts'
import { bulkDatabase, type Pair } from './clusters.ts'
import { type MigrationResult, runMigration } from './migration.ts'
import type { Outcome } from './plan.ts'
import type { FaultyServers } from './server-faults.ts'
import { migrateStepwise, type StepwiseResult, type StepwiseRun } from './stepwise.ts'

export interface UnderWorkloadOptions {
  pair: Pair
  seed: number
  /** Number of workload steps while tandem copies and applies changes. */
  steps?: number
  /** Whether the workload occasionally writes documents of 15.9 MB. */
  huge?: boolean
  /** Fields of the body of `start`. */
  start?: Record<string, unknown>
  faults?: (run: StepwiseRun) => Promise<void>
  serverFaults?: (servers: FaultyServers) => Promise<void>
  commitFaults?: (run: StepwiseRun) => Promise<void>
}

const seededShare = 0.3
const stepsBefore = 20

/** Runs one migration by one instance under the random workload, with faults of the instance or of the servers. */
export async function migrateUnderWorkload(options: UnderWorkloadOptions): Promise<MigrationResult<StepwiseResult>> {
  const { pair, seed, steps = 120, huge = false, serverFaults, commitFaults } = options
  const random = new Random(`faults ${seed}`)
  const start = { verification: { enabled: true }, ...options.start }
  const name = `workload-${seed}`
  return await runMigration({ clusters: pair, name, random, keep: [bulkDatabase], start }, async (migration) => {
    await seedData(pair.source.uri, seed, seededShare)
    // The application connects past the proxies, so it keeps its connections when tandem's are cut.
    const uri = (pair.source.proxies.length > 0 && pair.source.uris[0]) || pair.source.uri
    const workload = createWorkload({ uri, seed, ddl: true, huge, transactions: true })
    await workload.runSteps(stepsBefore)
    const faults = serverFaults
      ? ({ counts }: StepwiseRun) =>
          serverFaults({ source: pair.source, destination: pair.destination, random, counts })
      : options.faults
    const result = await migrateStepwise(migration, {
      workload,
      steps,
      lastSteps: Math.ceil(steps / 3),
      ...(faults && { faults }),
      ...(commitFaults && { commitFaults }),
    })
    await migration.compare()
    return result
  })
}

/** Returns the problems and the summary line of such a run. */
export function workloadOutcome(result: MigrationResult<StepwiseResult>): Outcome {
  const parts = [`${result.documents} documents`]
  if (result.kills > 0) {
    parts.push(`${result.kills} kills`, `slowest restart ${(result.slowestRestartMS / 1_000).toFixed(1)} s`)
    parts.push(`${result.segmentsReadAgain} finished segments read again`)
  }
  if (result.faults > 0) parts.push(`${result.faults} faults`)
  return { problems: result.problems, summary: parts.join(', ') }
}
