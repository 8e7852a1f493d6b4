import type { Liveness } from '../coordination/liveness.ts'
import { RefusedError } from '../domain/errors.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { checkStart } from './start-checks.ts'

/** More than instances make sense, so that every one of them gets some. */
const partitionsMin = 16

export interface BeginSyncParts {
  clusters: Record<ClusterName, Cluster>
  context: RetryContext
  /** Of the sync between these clusters, in either direction. */
  liveness: (destination: Cluster) => Liveness
  /** `liveness` is a Redis. */
  redis: boolean
  /** The sync between these two clusters that another instance, or a predecessor, has begun. */
  findStored: () => Promise<SyncRecord | null>
}

/** Looking for what is stored is repeated for half an hour; that a cluster does not answer is to be said at once. */
export async function reachBoth({ cluster0, cluster1 }: Record<ClusterName, Cluster>): Promise<void> {
  await Promise.all([cluster0, cluster1].map((cluster) => cluster.read('admin', { hello: 1 })))
}

/** Puts a sync on record, once all checks allow it; returns the record of another instance that was quicker. */
export async function beginSync(configuration: StartConfiguration, parts: BeginSyncParts): Promise<SyncRecord> {
  await reachLiveness(configuration, parts)
  const source = parts.clusters[configuration.source]
  const destination = parts.clusters[configuration.destination]
  let facts: Awaited<ReturnType<typeof checkStart>>
  try {
    facts = await checkStart(configuration, source, destination)
  } catch (error) {
    // Another instance may have begun between the look for a sync and this check, and filled the destination.
    const standing = await parts.findStored()
    if (!standing) throw error
    return standing
  }
  await appendOplogNote(source, 'start')
  const metadata = new Metadata(destination, parts.context)
  await metadata.forgetMove()
  return await metadata.createSync({
    configuration,
    sourceIdentity: facts.source.identity,
    destinationIdentity: facts.destination.identity,
    startTime: source.latest,
    partitions: Math.max(partitionsMin, facts.source.shards.length),
    redis: parts.redis,
    generation: 0,
  })
}

/** Without it nothing would go on; said before anything is changed. */
async function reachLiveness(configuration: StartConfiguration, parts: BeginSyncParts): Promise<void> {
  if (!parts.redis) return
  await parts
    .liveness(parts.clusters[configuration.destination])
    .instances()
    .catch((error) => {
      throw new RefusedError('ClusterUnreachable', error instanceof Error ? error.message : '--redis: no answer')
    })
}

/** Throws RefusedError where the sync on record is not the one that this start asks for. */
export function refuseOther(record: SyncRecord, configuration: StartConfiguration, redis: boolean): void {
  if (!sameConfiguration(record.configuration, configuration)) {
    throw new RefusedError(
      'ConfigurationMismatch',
      'another instance was started with a different body; send every instance the same start, or remove that sync first',
    )
  }
  const problem = otherStore(record, redis)
  if (problem) throw new RefusedError('ConfigurationMismatch', problem)
}

/** Instances that look for each other in different places would replace each other without end. */
export function otherStore(record: SyncRecord, redis: boolean): string | null {
  if (record.redis === redis) return null
  return record.redis
    ? 'this sync was begun by an instance with --redis; start every instance with the same --redis'
    : 'this sync was begun by an instance without --redis; start every instance without it'
}

/** Whether a default was spelled out makes no difference. */
export function sameConfiguration(one: StartConfiguration, other: StartConfiguration): boolean {
  return JSON.stringify({ ...one, writeBlockingGiven: true }) === JSON.stringify({ ...other, writeBlockingGiven: true })
}
