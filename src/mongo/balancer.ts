import { StoppedError } from '../domain/errors.ts'
import type { Cluster } from './cluster.ts'
import { writeLimitMS } from './cluster-writer.ts'
import { ranOutOfTime } from './errors.ts'
import type { Metadata } from './metadata.ts'
import type { RetryContext } from './retry.ts'

/** The router passes the limit on to the config server. Balancer commands accept no write concern. */
const limit = { maxTimeMS: writeLimitMS } as const

/**
 * Stops the destination's balancer while documents are written: a broadcast delete can miss a document that moves from
 * one shard to another. The previous mode is stored first, so that the instance that ends the sync can restore it. Both
 * functions may be repeated.
 *
 * The wait for a balancing round has no time limit, because a chunk migration may take hours. It is shown as a retry.
 * @param context its signal ends the wait
 */
export async function stopBalancer(
  destination: Cluster,
  metadata: Metadata,
  { signal, monitor, onRetry }: RetryContext,
): Promise<void> {
  if (!destination.sharded) return
  if ((await metadata.sharding.loadBalancer()) === null)
    await metadata.sharding.saveBalancer(await balancerMode(destination))
  const [what, key] = ['waiting for the balancing round', Symbol('balancing round')]
  try {
    for (;;) {
      destination.fence()
      if (signal.aborted) throw new StoppedError()
      try {
        // Waits for the balancing round in progress, so that the chunks it moved have arrived. A round may take longer
        // than the limit. The command stops the balancer before it waits, so a repetition only continues to wait.
        await destination.read('admin', { balancerStop: 1, ...limit })
        return
      } catch (error) {
        if (!ranOutOfTime(error)) throw error
        monitor.begin(key, what)
        onRetry?.(what, error)
      }
    }
  } finally {
    monitor.end(key)
  }
}

/** Called after the last write. Starts the balancer again if it was on before. */
export async function restoreBalancer(destination: Cluster, metadata: Metadata): Promise<void> {
  if (!destination.sharded || (await metadata.sharding.loadBalancer()) !== 'full') return
  destination.fence()
  await destination.read('admin', { balancerStart: 1, ...limit })
}

async function balancerMode(destination: Cluster): Promise<string> {
  const reply = await destination.read('admin', { balancerStatus: 1 })
  return String(reply['mode'])
}
