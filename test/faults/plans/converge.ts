import { converging } from '../../support/older-copy.ts'
import { type Pair, startPair } from '../clusters.ts'
import { coordinatorDies, cut, joinAndLeave, kill, pauseOne, stop } from '../instance-faults.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { type InstanceFault, migrateBySeveral } from '../several-instances.ts'

/** Every seed takes the next fault. */
const faults = (awayMS: number): InstanceFault[] => [
  kill('an instance', 3, true),
  kill('the coordinator', 2, true),
  kill('the coordinator', 1, false),
  stop('an instance', { awayMS }),
  joinAndLeave(),
  cut('swallowed', { awayMS }),
  coordinatorDies('barrier', true),
  pauseOne(),
]

/** Two instances that converge on a destination with an older copy, under a workload with DDL, with faults of one of them. */
export function convergePlan(options: PlanOptions): FaultPlan<Pair> {
  const { steps = 120, awayMS, bulk = 60_000 } = options
  const variants = faults(awayMS)
  return {
    open: () => startPair({ oplogSizeMB: 1_024, bulk }),
    runs: seedsOf(options).map((seed) => {
      const fault = converging(variants[seed % variants.length] as InstanceFault)
      return {
        name: `2 instances, ${fault.name}, seed ${seed}`,
        perform: async (pair) => {
          const { problems, documents, faults } = await migrateBySeveral({ pair, seed, instances: 2, steps, fault })
          return { problems, summary: `${documents} documents, ${faults} faults` }
        },
      }
    }),
  }
}
