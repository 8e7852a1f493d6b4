import { type Pair, startPair } from '../clusters.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { migrateUnderWorkload, workloadOutcome } from '../under-workload.ts'

const oplogSizeMB = 2_048

/** Runs random workloads without faults. In every third run, the sync blocks user writes on the source at commit. */
export function workloadPlan(options: PlanOptions): FaultPlan<Pair> {
  const { steps = 120 } = options
  return {
    open: () => startPair({ oplogSizeMB }),
    runs: seedsOf(options).map((seed) => ({
      name: `workload, seed ${seed}`,
      perform: async (pair) => {
        const start = seed % 3 === 0 ? { enableUserWriteBlocking: 'sourceAndDestination' } : {}
        return workloadOutcome(await migrateUnderWorkload({ pair, seed, steps, start }))
      },
    })),
  }
}
