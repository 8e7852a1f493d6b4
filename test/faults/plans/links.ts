import { type Pair, startPair } from '../clusters.ts'
import { coordinatorDies, kill } from '../instance-faults.ts'
import { changeLinks } from '../link-changes.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { type InstanceFault, migrateBySeveral } from '../several-instances.ts'

/** Every seed takes the next variant: two of three change only the links. */
const variants: readonly (InstanceFault | null)[] = [
  null,
  kill('an instance', 2, true),
  null,
  coordinatorDies('barrier', true),
  null,
  coordinatorDies('verdict', true),
]

/**
 * Over a slow link, each change of definitions takes seconds, so a workload that continued until a commit is possible
 * would write faster than two instances can follow.
 */
export const writesMS = 5_000

/** A fault that changes the links to both clusters from before the start until the end of the commit, beside another fault or alone. */
export function overChangingLinks(fault: InstanceFault | null): InstanceFault {
  return { ...fault, name: fault ? `changing links, ${fault.name}` : 'changing links', throughout: changeLinks }
}

/** Runs two instances, under a workload with DDL, over links whose round trip and bandwidth change during copy, following and commit. */
export function linksPlan(options: PlanOptions): FaultPlan<Pair> {
  const { steps = 80, bulk = 20_000, members } = options
  return {
    open: () => startPair({ members, proxied: true, variableLinks: true, oplogSizeMB: 1_024, bulk }),
    runs: seedsOf(options).map((seed) => {
      const fault = overChangingLinks(variants[seed % variants.length] ?? null)
      const instances = options.instances || 2
      return {
        name: `${instances} instances, ${fault.name}, seed ${seed}`,
        perform: async (pair) => {
          const result = await migrateBySeveral({ pair, seed, instances, steps, fault, writesMS })
          const { problems, documents, faults, spreadMS } = result
          return { problems, summary: `${documents} documents, ${faults} faults, could write within ${spreadMS} ms` }
        },
      }
    }),
  }
}
