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
  /** The other cluster: the one that the sync was moved from, if it was moved. */
  from: ClusterName
  cluster: Cluster
  context: RetryContext
}

/**
 * Throws `StoredStateConflict` unless the cluster that a reversed sync was moved from confirms it. That was the destination until then,
 * which only tandem writes to: what it holds is believed.
 *
 * It announces the record word for word (`Metadata.announceMove`) before anything is written on the other cluster. Earlier releases
 * announced nothing. Of a move of theirs it shows that it is under way, in the older record's state; or, once that is cleared, leases,
 * which no cluster has that never was a destination.
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
      `${older ? `one of its own (reversed ${times(older.generation)}), and ` : ''}does not confirm that the sync was moved from there to ` +
      `${name}. One of them was not written by tandem: see which cluster applications read and write, which is the source, remove the document ` +
      'of tandem_internal.sync there, find out who wrote it, and start again',
  )
}

/** By what an earlier release stored of a reversal on the cluster that it moved the sync from. */
async function isMoving({ generation }: SyncRecord, { cluster, context }: MoveToConfirm): Promise<boolean> {
  const store = new SyncStore(cluster, context, generation)
  const sync = await store.load()
  if (sync.matches({ reversing: 'moving' })) return true
  // Before the sync's state was one machine, its instances alone told of a reversal.
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

/** Stored by one process from one object, so that the order of the fields is the same. */
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
