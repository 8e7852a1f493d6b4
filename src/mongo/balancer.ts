import type { Cluster } from './cluster.ts'
import type { Metadata } from './metadata.ts'

const unlimited = { timeoutMS: 0 } as const

/**
 * Stops the destination's balancer while documents are written: a broadcast delete can miss a document that moves from
 * one shard to another. The previous mode is stored first, so that the instance that ends the sync can restore it. Both
 * functions may be repeated.
 */
export async function stopBalancer(destination: Cluster, metadata: Metadata): Promise<void> {
  if (!destination.sharded) return
  if ((await metadata.sharding.loadBalancer()) === null)
    await metadata.sharding.saveBalancer(await balancerMode(destination))
  destination.fence()
  // Waits for the balancing round in progress, so that the chunks it moved have arrived.
  await destination.read('admin', { balancerStop: 1 }, unlimited)
}

/** Called after the last write. Starts the balancer again if it was on before. */
export async function restoreBalancer(destination: Cluster, metadata: Metadata): Promise<void> {
  if (!destination.sharded || (await metadata.sharding.loadBalancer()) !== 'full') return
  destination.fence()
  await destination.read('admin', { balancerStart: 1 }, unlimited)
}

async function balancerMode(destination: Cluster): Promise<string> {
  const reply = await destination.read('admin', { balancerStatus: 1 })
  return String(reply['mode'])
}
