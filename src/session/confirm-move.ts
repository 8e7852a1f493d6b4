import type { InstanceContext } from '../../machines/instance-context.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { FatalError } from '../domain/errors.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'

export interface MoveToConfirm {
  /** The cluster that the record was found on. */
  name: ClusterName
  record: SyncRecord
  /** The record on the other cluster, if there is one. */
  older: SyncRecord | null
  /** The other cluster. If the sync was moved to `name`, it was moved from this cluster. */
  from: ClusterName
  cluster: Cluster
  context: RetryContext
}

/**
 * A reversal moves the record of the sync from one cluster (`from`) to the other (`name`). Throws FatalError
 * `StoredStateConflict` unless `from` confirms this move. Until the move, `from` was the destination, which only tandem
 * writes to, so its metadata is trusted.
 *
 * A release that announces moves stores an identical copy of the record on `from` (`Metadata.announceMove`) before it
 * writes anything on `name`. Earlier releases announced nothing. While a move by an earlier release is under way, the
 * state of the older record on `from` confirms the move. Once that record is removed, the leases on `from` confirm the
 * move, because only a cluster that was a destination has leases.
 */
export async function confirmMove(move: MoveToConfirm): Promise<void> {
  const { name, record, older, from, cluster, context } = move
  const metadata = new Metadata(cluster, context)
  const announced = await metadata.loadMove()
  if (announced && sameRecord(announced, record)) return
  if (!announced && record.generation > 0) {
    if (older === null && (await metadata.wasDestination())) return
    if (older?.generation === record.generation - 1 && (await isMoving(older, move))) return
  }
  throw new FatalError(
    'StoredStateConflict',
    `${name} holds a record of this sync (reversed ${times(record.generation)}), and ${from} ` +
      `${older ? `has another record (reversed ${times(older.generation)}), and ` : ''}does not confirm that the sync was moved to ` +
      `${name}. tandem did not write all of these records. Nothing was changed. Find out which cluster applications write to: that is the ` +
      `source. On the source, remove the document of ${cluster.metadataDatabase}.sync, find out who wrote it, and start again`,
  )
}

/** True when the state that an earlier release stored on the former destination shows that a reversal is under way. */
async function isMoving({ generation }: SyncRecord, { cluster, context }: MoveToConfirm): Promise<boolean> {
  const store = new SyncStore(cluster, context, generation)
  const sync = await store.load()
  if (sync.matches({ reversing: 'moving' })) return true
  // Releases that stored no state of the sync showed a reversal only in the stored state of the instances.
  if (!sync.matches('committed') || store.view.revision > 0) return false
  const instances = [...(await new Metadata(cluster, context).loadInstances()).values()]
  return instances.some((one) => (one as Partial<InstanceContext>).reversing === 'moving')
}

function times(count: number): string {
  return count === 0 ? 'never' : count === 1 ? 'once' : `${count} times`
}

function sameRecord(one: SyncRecord, other: SyncRecord): boolean {
  return textOf(one) === textOf(other)
}

/** Records can be compared as text: one process stored both from one object, so the order of their fields is the same. */
function textOf(record: SyncRecord): string {
  const { configuration, sourceIdentity, destinationIdentity, startTime, partitions, redis, generation } = record
  const parts = [
    configuration,
    sourceIdentity,
    destinationIdentity,
    startTime.toString(),
    partitions,
    redis,
    generation,
  ]
  return JSON.stringify(parts)
}
