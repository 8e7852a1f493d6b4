import { Random } from '../../support/random.ts'
import { type Pair, startPair } from '../clusters.ts'
import {
  barrierSteps,
  commitSteps,
  coordinatorDies,
  cut,
  joinAndLeave,
  kill,
  pauseOne,
  stop,
} from '../instance-faults.ts'
import { chosenFaults, type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { type InstanceFault, migrateBySeveral } from '../several-instances.ts'

/** Faults of single instances by kind. The seeds of a kind take its variants in turn. */
const kinds: Record<string, (awayMS: number) => (InstanceFault | undefined)[]> = {
  none: () => [undefined],
  kill: () => [
    kill('an instance', 3, true),
    kill('the coordinator', 2, true),
    kill('an instance', 1, false),
    kill('the coordinator', 1, false),
  ],
  stop: (awayMS) => [stop('an instance', { awayMS }), stop('the coordinator', { awayMS })],
  join: () => [joinAndLeave()],
  cut: (awayMS) => [cut('refused', { awayMS }), cut('swallowed', { awayMS })],
  coordinator: () =>
    [...barrierSteps, ...commitSteps].flatMap((step) => [coordinatorDies(step, true), coordinatorDies(step, false)]),
  pause: () => [pauseOne()],
}

/**
 * Runs several instances, two to four unless `options.instances` is set. Depending on the seed, instances are killed,
 * suspended, disconnected or paused, or join and leave, or there is no fault.
 */
export function instancesPlan(options: PlanOptions): FaultPlan<Pair> {
  const { steps = 120, awayMS, bulk = 120_000 } = options
  const chosen = chosenFaults(Object.keys(kinds), options.faults)
  return {
    open: () => startPair({ oplogSizeMB: 2_048, bulk }),
    runs: seedsOf(options).map((seed) => {
      const variants = kinds[chosen[seed % chosen.length] ?? '']?.(awayMS) ?? []
      const fault = variants[Math.floor(seed / chosen.length) % variants.length]
      const instances = options.instances || new Random(`instances ${seed}`).int(2, 4)
      return {
        name: `${instances} instances, ${fault?.name ?? 'no fault'}, seed ${seed}`,
        perform: async (pair) => {
          const result = await migrateBySeveral({ pair, seed, instances, steps, fault })
          const { problems, documents, faults, takeovers, slowestTakeoverMS, spreadMS } = result
          const summary =
            `${documents} documents, ${faults} faults, ${takeovers} claims taken over in at most ` +
            `${(slowestTakeoverMS / 1_000).toFixed(1)} s, canWrite and COMMITTED within ${spreadMS} ms`
          return { problems, summary }
        },
      }
    }),
  }
}
