import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../support/random.ts'
import type { ShardedClusters } from './clusters.ts'

/**
 * Faults of the servers of sharded clusters. The delays between them are random; they do not wait for a condition.
 *
 * shards    a shard elects a primary
 * config    the config servers elect a primary
 * routers   a router is killed and started again. It loses its cursors, transactions and routing table. The first router
 *           of a cluster is never killed, because the workload and the moves of chunks use it
 */
export const shardedFaultKinds = ['shards', 'config', 'routers'] as const

export type ShardedFaultKind = (typeof shardedFaultKinds)[number]

export interface FaultyClusters {
  clusters: ShardedClusters
  random: Random
  /** Called before each fault with its name. */
  note: (what: string) => void
  counts: { faults: number }
}

/** Injects `count` faults of these kinds, each on either cluster, one after the other. */
export async function injectFaults(
  run: FaultyClusters,
  kinds: readonly ShardedFaultKind[],
  count: number,
  betweenMS: number,
): Promise<void> {
  for (let fault = 0; fault < count; fault++) {
    await sleep(run.random.int(0, betweenMS))
    await injectFault(run, kinds)
    run.counts.faults += 1
  }
}

async function injectFault({ clusters, random, note }: FaultyClusters, kinds: readonly ShardedFaultKind[]) {
  const side = random.pick(['source', 'destination'] as const)
  const { shards, config, mongoses } = clusters[side]
  const routers = mongoses.slice(1)
  const possible = kinds.filter((kind) => kind !== 'routers' || routers.length > 0)
  if (possible.length === 0) throw new Error('a fault of a router needs a cluster with several routers')
  const kind = random.pick(possible)
  if (kind === 'routers') {
    const at = random.int(0, routers.length - 1)
    note(`router ${at + 1} of the ${side} restarts`)
    await routers[at]?.restart()
    return
  }
  const at = random.int(0, shards.length - 1)
  note(kind === 'config' ? `election on the config servers of the ${side}` : `election on shard ${at} of the ${side}`)
  await (kind === 'config' ? config : shards[at])?.stepDown()
}
