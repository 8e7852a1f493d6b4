import { type Pair, startPair } from '../clusters.ts'
import { runCommitKill } from '../commit-kill.ts'
import { describePlan, randomCommitKill } from '../commit-kill-plan.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'

/**
 * Runs one or two instances, and kills them at every step and at random moments of commit, abort and rehearsal, while
 * clients write on both clusters.
 */
export function commitKillsPlan(options: PlanOptions): FaultPlan<Pair> {
  return {
    open: () => startPair({ oplogSizeMB: 2_048 }),
    runs: seedsOf(options).map((seed) => {
      const plan = randomCommitKill(seed)
      return {
        name: `commit, seed ${seed}: ${describePlan(plan)}`,
        perform: async (pair) => {
          const result = await runCommitKill(pair, seed, plan)
          const { problems, skipped, faults, sourceWrites, destinationWrites, writableAfterMS } = result
          const summary =
            `${faults} killed, ${sourceWrites} writes on the source, ${destinationWrites} on the destination, ` +
            `canWrite after ${writableAfterMS} ms`
          return { problems, skipped, summary }
        },
      }
    }),
  }
}
