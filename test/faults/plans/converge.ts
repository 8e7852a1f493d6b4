import { converging } from '../../support/older-copy.ts'
import { type Pair, startPair } from '../clusters.ts'
import { coordinatorDies, cut, joinAndLeave, kill, pauseOne, stop } from '../instance-faults.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { cuts, stepDowns } from '../server-faults.ts'
import { type InstanceFault, migrateBySeveral } from '../several-instances.ts'

const sides = ['source', 'destination'] as const

/** Returns the faults. Successive seeds take them in turn. */
const faults = (awayMS: number): InstanceFault[] => [
  kill('an instance', 3, true),
  kill('the coordinator', 2, true),
  kill('the coordinator', 1, false),
  stop('an instance', { awayMS }),
  joinAndLeave(),
  cut('swallowed', { awayMS }),
  coordinatorDies('barrier', true),
  pauseOne(),
  cut('refused', { awayMS }),
  ...sides.map((side) => ({ name: `elections on the ${side}`, servers: stepDowns(side, 5, 800) })),
  ...sides.map((side) => ({ name: `connections of the ${side} cut`, servers: cuts(side, 4, 1_000, 3_000) })),
  killAndElections(),
]

function killAndElections(): InstanceFault {
  const killed = kill('an instance', 2, true)
  return {
    ...killed,
    name: `${killed.name}, and elections on the destination`,
    servers: stepDowns('destination', 4, 1_500),
  }
}

/**
 * Lets two instances converge a destination that has an older copy, under a workload with DDL and with faults of one
 * instance, of the servers or of the network.
 */
export function convergePlan(options: PlanOptions): FaultPlan<Pair> {
  const { steps = 120, awayMS, bulk = 60_000, members } = options
  const variants = faults(awayMS)
  return {
    open: () => startPair({ members, proxied: true, oplogSizeMB: 1_024, bulk }),
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
