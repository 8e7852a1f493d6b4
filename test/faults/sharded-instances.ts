import { MongoClient } from 'mongodb'
import { Random } from '../support/random.ts'
import { ShardedWorkload, zonesOf } from '../support/sharded-workload.ts'
import { until } from '../support/until.ts'
import type { ShardedClusters } from './clusters.ts'
import { moveAfterCommit, startBalancer } from './destination-chunks.ts'
import { type MigrationResult, type RunningMigration, runMigration } from './migration.ts'
import type { RunningInstances } from './running-instances.ts'
import { injectFaults, type ShardedFaultKind } from './sharded-faults.ts'
import { migrateStepwise } from './stepwise.ts'

export interface ShardedResult {
  /** Operations of the workload by kind. */
  counts: Record<string, number>
  /** Bytes copied by each instance. */
  copied: number[]
  total: number
  /** Number of faults. */
  faults: number
}

export interface ShardedOptions {
  /** Kinds of faults while documents are copied, changes are applied and the commit is under way; by default none. */
  faults?: readonly ShardedFaultKind[]
}

const stepsBefore = 20
const chunkMoveMS = 2_000
/** Faults of a run before its commit, and during it. */
const faultsBefore = 4
const faultsDuringCommit = 2
const betweenFaultsMS = 3_000
const betweenCommitFaultsMS = 500

/**
 * Runs one migration between sharded clusters by several instances, under a workload of transactions across shards, shard keys that
 * change, documents that share an `_id` in two zones, chunks that move every two seconds with the balancer on, and definitions that change. On the destination, whose balancer
 * tandem stops during the sync, chunks move after the commit. The workload uses the first
 * router alone, so the other routers do not know its collections yet, or have outdated routing tables for them.
 */
export async function migrateSharded(
  clusters: ShardedClusters,
  seed: number,
  instanceCount: number,
  steps = 120,
  { faults: kinds = [] }: ShardedOptions = {},
): Promise<MigrationResult<ShardedResult>> {
  const { source, destination } = clusters
  const counts = { faults: 0 }
  const random = new Random(`faults ${seed}`)
  return await runMigration({ clusters, name: `sharded-${instanceCount}-${seed}`, random }, async (migration) => {
    const workload = new ShardedWorkload(source.mongoses[0]?.uri ?? source.uri, source, String(seed), {
      ...{ ddl: true, balancer: true, repeated: true },
    })
    migration.atEnd(() => workload.close())
    await startBalancer(destination)
    await workload.create()
    migration.instances.note('the collections exist')
    await workload.run(stepsBefore)
    migration.instances.note('the steps before the start are done')
    const over = new AbortController()
    const chunks = workload.pingPong(chunkMoveMS, over.signal)
    chunks.catch(() => {})
    const endMoves = async (): Promise<void> => {
      over.abort()
      await chunks
    }
    migration.atEnd(endMoves)
    const ids = Array.from({ length: instanceCount }, (_, at) => `instance${at}`)
    const run = { clusters, random, note: (what: string) => migration.instances.note(what), counts }
    const inject = (count: number, betweenMS: number) => async (): Promise<void> => {
      if (kinds.length > 0) await injectFaults(run, kinds, count, betweenMS)
    }
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
      faults: inject(faultsBefore, betweenFaultsMS),
      commitFaults: inject(faultsDuringCommit, betweenCommitFaultsMS),
    })
    // The moves have their own generator, so that a seed still gives the same faults.
    workload.counts['moveChunk after the commit'] = await moveAfterCommit(
      destination,
      new Random(`moves after the commit ${seed}`),
    )
    await migration.compare()
    await compareZones(migration)
    return { counts: workload.counts, ...copies, ...counts }
  })
}

/**
 * Waits until the copied bytes add up. While a drop is followed, one instance subtracts the collection's bytes from the
 * total earlier than another.
 */
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

/** Zones are copied to shards of the same name. */
async function compareZones({ clusters, problems }: RunningMigration<ShardedClusters>): Promise<void> {
  const [from, to] = [clusters.source, clusters.destination]
  if (from.shards.some(({ name }, at) => at < 2 && !to.shards.some((shard) => shard.name === name))) return
  await using source = await MongoClient.connect(from.uri)
  await using destination = await MongoClient.connect(to.uri)
  const [wanted, existing] = [await zonesOf(source), await zonesOf(destination)]
  if (wanted !== existing) problems.push(`the zones are ${existing}, not ${wanted}`)
}
