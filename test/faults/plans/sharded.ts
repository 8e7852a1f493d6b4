import { type ShardedClusters, startShardedClusters, throughAll } from '../clusters.ts'
import { chosenFaults, type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { shardedFaultKinds } from '../sharded-faults.ts'
import { migrateSharded } from '../sharded-instances.ts'

export interface ShardedPlanOptions extends PlanOptions {
  shards: number
  destinationShards: number
  /** Routers of each cluster, all of them in the connection strings. */
  routers: number
}

/**
 * Runs several instances between sharded clusters while documents and chunks move, definitions change, shards and config
 * servers elect primaries and routers restart (`--faults none` for no faults).
 */
export function shardedPlan(options: ShardedPlanOptions): FaultPlan<ShardedClusters> {
  const { steps = 120, instances = 2, shards, destinationShards, routers } = options
  const chosen = chosenFaults(['none', ...shardedFaultKinds], options.faults)
  const faults = shardedFaultKinds.filter((kind) => chosen.includes(kind) && (kind !== 'routers' || routers > 1))
  return {
    open: async () => {
      // With equal names of the shards, the zones of the source are copied.
      const common = { mongoses: routers, name: 'chaos' }
      const clusters = await startShardedClusters({ shards, ...common }, { shards: destinationShards, ...common })
      return { ...clusters, source: throughAll(clusters.source), destination: throughAll(clusters.destination) }
    },
    runs: seedsOf(options).map((seed) => ({
      name: `${instances} instances, ${routers} routers, ${faults.join('+') || 'no faults'}, sharded, seed ${seed}`,
      perform: async (clusters) => {
        const {
          problems,
          copied,
          counts,
          faults: injected,
        } = await migrateSharded(clusters, seed, instances, steps, {
          faults,
        })
        const operations = Object.entries(counts).map(([what, count]) => `${what} ${count}`)
        return { problems, summary: `copied ${copied.join('+')}; ${injected} faults; ${operations.join(', ')}` }
      },
    })),
  }
}
