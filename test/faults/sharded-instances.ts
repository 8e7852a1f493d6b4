import { Random } from '../support/random.ts'
import { ShardedWorkload } from '../support/sharded-workload.ts'
import { until } from '../support/until.ts'
import type { ShardedClusters } from './clusters.ts'
import { type MigrationResult, runMigration } from './migration.ts'
import type { RunningInstances } from './running-instances.ts'
import { migrateStepwise } from './stepwise.ts'

export interface ShardedResult {
  /** Operations of the workload by kind. */
  counts: Record<string, number>
  /** Bytes copied by each instance. */
  copied: number[]
  total: number
}

const stepsBefore = 20
const chunkMoveMS = 2_000

/**
 * Runs one migration between sharded clusters by several instances, under a workload of transactions across shards, shard keys that
 * change, chunks that move every two seconds with the balancer on, and definitions that change.
 */
export async function migrateSharded(
  clusters: ShardedClusters,
  seed: number,
  instanceCount: number,
  steps = 120,
): Promise<MigrationResult<ShardedResult>> {
  const { source } = clusters
  const random = new Random(`faults ${seed}`)
  return await runMigration({ clusters, name: `sharded-${instanceCount}-${seed}`, random }, async (migration) => {
    const workload = new ShardedWorkload(source.uri, source, String(seed), { ddl: true, balancer: true })
    migration.atEnd(() => workload.close())
    await workload.create()
    await workload.run(stepsBefore)
    const over = new AbortController()
    const chunks = workload.pingPong(chunkMoveMS, over.signal)
    chunks.catch(() => {})
    const endMoves = async (): Promise<void> => {
      over.abort()
      await chunks
    }
    migration.atEnd(endMoves)
    const ids = Array.from({ length: instanceCount }, (_, at) => `instance${at}`)
    let copies = { copied: [] as number[], total: Number.NaN }
    await migrateStepwise(migration, {
      workload: { runSteps: (count) => workload.run(count) },
      steps,
      lastSteps: Math.ceil(steps / 2),
      ids,
      whenReady: async () => {
        copies = await copiedBytes(migration.instances, ids)
      },
      whenWritten: endMoves,
    })
    await migration.compare()
    return { counts: workload.counts, ...copies }
  })
}

/** Waits until the copied bytes add up: while a drop is being followed, its bytes leave the total on one instance before another. */
async function copiedBytes(instances: RunningInstances, ids: string[]): Promise<{ copied: number[]; total: number }> {
  return await until('copied bytes that add up', async () => {
    const now = await Promise.all(ids.map((id) => instances.get(id).progress()))
    const [total = 0, ...others] = now.map(({ collectionCopy }) => collectionCopy?.estimatedTotalBytes ?? 0)
    const copied = now.map(({ collectionCopy }) => collectionCopy?.estimatedCopiedBytes ?? 0)
    const sum = copied.reduce((all, bytes) => all + bytes, 0)
    if (others.some((other) => other !== total) || sum !== total) throw new Error(`${copied.join(' + ')} of ${total}`)
    return { copied, total }
  })
}
