import { MongoServerError } from 'mongodb'
import { expect, it } from 'vitest'
import { stopBalancer } from '../../src/mongo/balancer.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import type { Metadata } from '../../src/mongo/metadata.ts'
import { RetryMonitor } from '../../src/mongo/retry.ts'

/** A balancing round lasts as long as its longest migration, and `start` and `reverse` wait for it. */

it('the wait for a balancing round is shown and logged, and lasts until the round has ended', async () => {
  const monitor = new RetryMonitor()
  const shown: (string | undefined)[] = []
  const retried: string[] = []
  let rounds = 0
  const read = async (): Promise<object> => {
    shown.push(monitor.current?.what)
    rounds += 1
    if (rounds < 3) throw new MongoServerError({ message: 'operation exceeded time limit', code: 50 })
    return { ok: 1 }
  }
  const cluster = { sharded: true, fence: () => {}, read } as unknown as Cluster
  const metadata = { sharding: { loadBalancer: async () => 'full' } } as unknown as Metadata
  const { signal } = new AbortController()
  await stopBalancer(cluster, metadata, { monitor, signal, onRetry: (what) => retried.push(what) })
  const what = 'waiting for the balancing round'
  expect(shown).toEqual([undefined, what, what])
  expect(retried).toEqual([what, what])
  expect(monitor.current).toBeUndefined()
})
