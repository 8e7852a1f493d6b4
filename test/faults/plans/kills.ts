import { type Pair, startPair } from '../clusters.ts'
import type { FaultPlan, PlannedRun, PlanOptions } from '../plan.ts'
import { kills } from '../stepwise.ts'
import { migrateUnderWorkload, workloadOutcome } from '../under-workload.ts'

const oplogSizeMB = 2_048
const bulkDocuments = 200_000
const perRun = 5
const betweenMS = 1_500
/** Kills during a commit must follow each other quickly, because a commit is short. */
const betweenAtCommitMS = 150

/** Kills the instance by kill -9 at random moments of copy, event application and commit. `count` is the number of kills, five per run. */
export function killPlan({ count, from, steps = 120 }: PlanOptions): FaultPlan<Pair> {
  const runs: PlannedRun<Pair>[] = []
  for (let seed = from, remaining = count; remaining > 0; seed++, remaining -= perRun) {
    const killsInRun = Math.min(perRun, remaining)
    const atCommit = seed % 2 === 0 ? 2 : 1
    runs.push({
      name: `kill -9, seed ${seed}`,
      perform: async (pair) => {
        const faults = kills(Math.max(0, killsInRun - atCommit), betweenMS)
        const commitFaults = kills(Math.min(killsInRun, atCommit), betweenAtCommitMS)
        return workloadOutcome(await migrateUnderWorkload({ pair, seed, steps, faults, commitFaults }))
      },
    })
  }
  return { open: () => startPair({ oplogSizeMB, bulk: bulkDocuments }), runs }
}
