import { type Pair, startPair } from '../clusters.ts'
import type { FaultPlan, PlannedRun, PlanOptions } from '../plan.ts'
import { kills } from '../stepwise.ts'
import { migrateUnderWorkload, workloadOutcome } from '../under-workload.ts'

const oplogSizeMB = 2_048
const bulk = 200_000
const perRun = 5
const betweenMS = 1_500
/** A commit takes no longer. */
const betweenAtCommitMS = 150

/** kill -9 at random moments of copy, application and commit. `count` is the number of kills, five in a run. */
export function killPlan({ count, from, steps = 120 }: PlanOptions): FaultPlan<Pair> {
  const runs: PlannedRun<Pair>[] = []
  for (let seed = from, left = count; left > 0; seed++, left -= perRun) {
    const here = Math.min(perRun, left)
    const atCommit = seed % 2 === 0 ? 2 : 1
    runs.push({
      name: `kill -9, seed ${seed}`,
      perform: async (pair) => {
        const faults = kills(Math.max(0, here - atCommit), betweenMS)
        const commitFaults = kills(Math.min(here, atCommit), betweenAtCommitMS)
        return workloadOutcome(await migrateUnderWorkload({ pair, seed, steps, faults, commitFaults }))
      },
    })
  }
  return { open: () => startPair({ oplogSizeMB, bulk }), runs }
}
