import type { Cluster } from './cluster.ts'
import type { Metadata } from './metadata.ts'

const unlimited = { timeoutMS: 0 } as const

/**
 * The destination's balancer rests while documents are written: a delete that is broadcast can miss a document on its way from one
 * shard to another. What it was before is stored first, so that whoever ends the sync can put it back. Both may be repeated.
 */
export async function stopBalancer(destination: Cluster, metadata: Metadata): Promise<void> {
  if (!destination.sharded) return
  if ((await metadata.sharding.loadBalancer()) === null)
    await metadata.sharding.saveBalancer(await balancerMode(destination))
  destination.fence()
  // Waits for the round under way; what chunks it moved have arrived by then.
  await destination.read('admin', { balancerStop: 1 }, unlimited)
}

/** Once nothing is written any more: the balancer goes on if it was on before. */
export async function restoreBalancer(destination: Cluster, metadata: Metadata): Promise<void> {
  if (!destination.sharded || (await metadata.sharding.loadBalancer()) !== 'full') return
  destination.fence()
  await destination.read('admin', { balancerStart: 1 }, unlimited)
}

async function balancerMode(destination: Cluster): Promise<string> {
  const reply = await destination.read('admin', { balancerStatus: 1 })
  return String(reply['mode'])
}
