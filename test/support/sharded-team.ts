import { MongoClient } from 'mongodb'
import { compareBoth } from './compare-both.ts'
import { emptyCluster } from './empty-cluster.ts'
import type { ShardedCluster } from './sharded-cluster.ts'
import { ShardedWorkload } from './sharded-workload.ts'
import { expectAccepted, startTeam } from './team.ts'
import { until } from './until.ts'

export interface ShardedTeamResult {
  differences: string[]
  counts: Record<string, number>
  /** Bytes copied by each instance. */
  copied: number[]
  total: number
}

/**
 * One migration between sharded clusters by several instances, under a workload of transactions over shards, shard keys that
 * change, chunks that move every two seconds with the balancer on, and definitions that change.
 */
export async function runShardedTeam(
  clusters: { source: ShardedCluster; destination: ShardedCluster },
  seed: number,
  instances: number,
  steps = 120,
): Promise<ShardedTeamResult> {
  const { source, destination } = clusters
  for (const { uri } of [source, destination]) {
    await using client = await MongoClient.connect(uri)
    await emptyCluster(client)
  }
  const workload = new ShardedWorkload(source.uri, source, String(seed), { ddl: true, balancer: true })
  const ids = Array.from({ length: instances }, (_, at) => `instance${at}`)
  const over = new AbortController()
  const team = await startTeam(ids, { cluster0: source.uri, cluster1: destination.uri })
  let chunks: Promise<void> = Promise.resolve()
  try {
    await workload.create()
    await workload.run(20)
    chunks = workload.pingPong(2_000, over.signal)
    chunks.catch(() => {})
    await until('connected', () => team.allReach(({ state }) => state === 'IDLE', 'IDLE'))
    expectAccepted(await team.post('start', { source: 'cluster0', destination: 'cluster1' }))
    await workload.run(steps)
    await team.allReach(({ canCommit }) => canCommit, 'canCommit', 120)
    // Drops that are still being followed take their bytes along, on one instance sooner than on another.
    const copies = await until('copied bytes that add up', async () => {
      const now = await team.allReach(() => true, 'asked')
      const [total, ...others] = now.map(({ collectionCopy }) => collectionCopy?.estimatedTotalBytes ?? 0)
      const copied = now.map(({ collectionCopy }) => collectionCopy?.estimatedCopiedBytes ?? 0)
      const sum = copied.reduce((all, bytes) => all + bytes, 0)
      if (others.some((other) => other !== total) || sum !== total) throw new Error(`${copied.join(' + ')} of ${total}`)
      return { copied, total }
    })
    await workload.run(Math.ceil(steps / 2))
    over.abort()
    await chunks
    expectAccepted(await team.post('commit'))
    await team.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
    const { differences } = await compareBoth(source.uri, destination.uri)
    return {
      differences,
      counts: workload.counts,
      ...copies,
    }
  } catch (error) {
    const outputs = [...team.members].map(([id, tandem]) => `--- ${id}\n${tandem.output()}`).join('\n')
    throw new Error(
      `seed ${seed}, ${instances} instances: ${error instanceof Error ? error.message : error}\n${outputs}`,
      {
        cause: error,
      },
    )
  } finally {
    over.abort()
    await chunks.catch(() => {})
    await team.stop()
    await workload.close()
  }
}
