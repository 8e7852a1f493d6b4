import { type ShardedClusters, startShardedClusters } from '../clusters.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { migrateSharded } from '../sharded-instances.ts'

export interface ShardedPlanOptions extends PlanOptions {
  shards: number
  destinationShards: number
}

/** Runs several instances between sharded clusters while documents and chunks move and definitions change. */
export function shardedPlan(options: ShardedPlanOptions): FaultPlan<ShardedClusters> {
  const { steps = 120, instances = 2, shards, destinationShards } = options
  return {
    open: () => startShardedClusters({ shards }, { shards: destinationShards }),
    runs: seedsOf(options).map((seed) => ({
      name: `${instances} instances, sharded, seed ${seed}`,
      perform: async (clusters) => {
        const { problems, copied, counts } = await migrateSharded(clusters, seed, instances, steps)
        const operations = Object.entries(counts).map(([what, count]) => `${what} ${count}`)
        return { problems, summary: `copied ${copied.join('+')}; ${operations.join(', ')}` }
      },
    })),
  }
}
