import { type Pair, startPair } from '../clusters.ts'
import { migrateFiltered } from '../filtered.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { randomFilter } from '../random-filter.ts'

/** Filters of every shape (48 of them) under the random workload, with DDL at their edges. */
export function filterPlan(options: PlanOptions): FaultPlan<Pair> {
  const { steps = 120 } = options
  return {
    open: () => startPair({ oplogSizeMB: 2_048 }),
    runs: seedsOf(options).map((seed) => ({
      name: `filter, seed ${seed}: ${randomFilter(seed).what}`,
      perform: async (pair) => {
        const { edgeAvoided, state, crossings, documents, problems } = await migrateFiltered(pair, seed, steps)
        const edge = edgeAvoided ? 'edge avoided' : `${crossings.length} renames over the edge`
        return { problems, summary: `${state}, ${edge}, ${documents} documents` }
      },
    })),
  }
}
