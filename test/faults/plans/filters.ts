import { type Pair, startPair } from '../clusters.ts'
import { migrateFiltered } from '../filtered.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { randomFilter } from '../random-filter.ts'

/** Runs filters of all 48 shapes under the random workload, with DDL across their edges. */
export function filterPlan(options: PlanOptions): FaultPlan<Pair> {
  const { steps = 120 } = options
  return {
    open: () => startPair({ oplogSizeMB: 2_048 }),
    runs: seedsOf(options).map((seed) => ({
      name: `filter, seed ${seed}: ${randomFilter(seed).what}`,
      perform: async (pair) => {
        const { crossings, documents, problems } = await migrateFiltered(pair, seed, steps)
        return { problems, summary: `${crossings.length} renames across the edge, ${documents} documents` }
      },
    })),
  }
}
