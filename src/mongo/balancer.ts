import { StoppedError } from '../domain/errors.ts'
import type { Cluster } from './cluster.ts'
import { writeLimitMS } from './cluster-writer.ts'
import { ranOutOfTime } from './errors.ts'
import type { Metadata } from './metadata.ts'
import type { RetryContext } from './retry.ts'

/**
 * The server's time limit of a balancer command. The router passes it on to the config server. These commands are sent
 * with `read`, because they accept no write concern, which `write` would add.
 */
const limit = { maxTimeMS: writeLimitMS } as const

/**
 * Stops the destination's balancer while documents are written: a broadcast delete can miss a document that moves from
 * one shard to another. The previous mode is stored first, so that the instance that ends the sync can restore it with
 * `restoreBalancer`. The call may be repeated.
 *
 * The wait for a balancing round has no time limit, because a chunk migration may take hours. `progress.retrying` shows
 * the wait.
 * @param context its signal ends the wait
 * @throws StoppedError if the signal is aborted
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
        // The command stops the balancer and then waits until the balancing round in progress has moved its chunks. A
        // round may take longer than the limit. The repeated command only continues to wait.
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

/**
 * Starts the balancer again if it was on before `stopBalancer`. Must be called after the last write of documents. The
 * call may be repeated.
 */
export async function restoreBalancer(destination: Cluster, metadata: Metadata): Promise<void> {
  if (!destination.sharded || (await metadata.sharding.loadBalancer()) !== 'full') return
  destination.fence()
  await destination.read('admin', { balancerStart: 1, ...limit })
}

async function balancerMode(destination: Cluster): Promise<string> {
  const reply = await destination.read('admin', { balancerStatus: 1 })
  return String(reply['mode'])
}
