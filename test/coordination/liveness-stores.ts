import type { InstanceHeartbeat, Liveness } from '../../src/coordination/liveness.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { RedisLiveness } from '../../src/redis/redis-liveness.ts'
import { testCluster } from '../mongo/clusters.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import { startRedis } from '../support/redis-server.ts'
import { startReplicaSet } from '../support/replica-set.ts'
import { startProxy, type TcpProxy } from '../support/tcp-proxy.ts'

export interface LivenessStore {
  /** Opens a separate client, like another process. `scope` selects one of two syncs. */
  open(options?: { ttlMS?: number; scope?: 'one' | 'two' }): Liveness
  /** Proxy between the clients and scope "one". */
  proxy: TcpProxy
  stop(): Promise<void>
}

/** Each of the two scopes is a separate cluster, because a metadata database belongs to one sync. */
export async function mongoStore(): Promise<LivenessStore> {
  const [one, two] = await Promise.all([startReplicaSet({ proxied: true }), borrowReplicaSet()])
  const clusters: ReturnType<typeof testCluster>[] = []
  return {
    open: ({ ttlMS, scope = 'one' } = {}) => {
      const cluster = testCluster((scope === 'one' ? one : two).uri)
      clusters.push(cluster)
      return new MongoLiveness(cluster, ttlMS === undefined ? {} : { ttlMS })
    },
    proxy: one.proxies[0] as TcpProxy,
    stop: async () => {
      await Promise.all(clusters.map((cluster) => cluster.close()))
      await Promise.all([one.stop(), two.stop()])
    },
  }
}

export async function redisStore(): Promise<LivenessStore> {
  const redis = await startRedis()
  const proxy = await startProxy('127.0.0.1', redis.port)
  const opened: Liveness[] = []
  return {
    open: ({ ttlMS, scope = 'one' } = {}) => {
      const url = `redis://127.0.0.1:${scope === 'one' ? proxy.port : redis.port}`
      const liveness = new RedisLiveness(url, `scope ${scope}`, ttlMS === undefined ? {} : { ttlMS })
      opened.push(liveness)
      return liveness
    },
    proxy,
    stop: async () => {
      await Promise.all(opened.map((liveness) => liveness.close()))
      await proxy.close()
      await redis.stop()
    },
  }
}

export const idleProgress: Progress = {
  state: 'IDLE',
  canCommit: false,
  canWrite: null,
  info: null,
  lagTimeSeconds: null,
  totalEventsApplied: null,
  collectionCopy: null,
  directionMapping: null,
  mongosyncID: 'a',
  coordinatorID: null,
  verification: null,
}

export function heartbeatOf(id: string, rest: Partial<InstanceHeartbeat> = {}): InstanceHeartbeat {
  return { id, incarnation: `${id}1`, coordinator: false, partitions: [], progress: idleProgress, ...rest }
}
