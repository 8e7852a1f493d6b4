import { type Pair, startPair } from '../clusters.ts'
import { runCommitKill } from '../commit-kill.ts'
import { commitKillPlan, describePlan } from '../commit-kill-plan.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'

/**
 * Kills of one or two instances at every step and at random moments of commit, abort and rehearsal, while clients write on
 * both clusters.
 */
export function commitKillsPlan(options: PlanOptions): FaultPlan<Pair> {
  return {
    open: () => startPair({ oplogSizeMB: 2_048 }),
    runs: seedsOf(options).map((seed) => {
      const plan = commitKillPlan(seed)
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
