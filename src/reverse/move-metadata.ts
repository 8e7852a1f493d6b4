import { completed, type InstanceContext, reversedContext, storable } from '../../machines/instance-context.ts'
import { reversedSync } from '../coordination/stored-sync.ts'
import type { SyncStore } from '../coordination/sync-store.ts'
import { swapConfiguration, swapEntry } from '../domain/direction.ts'
import { assert, FatalError } from '../domain/errors.ts'
import { notLost } from '../domain/not-lost.ts'
import type { StreamPosition } from '../mongo/change-stream.ts'
import type { Metadata, SyncRecord } from '../mongo/metadata.ts'
import type { VerificationStore } from '../mongo/verification-store.ts'
import { streamPartition } from '../verify/checkpoint.ts'

/** Every later owner of the moved partitions and positions has a higher epoch. */
const firstEpoch = 0

/**
 * Start position of the reversed streams if the commit stored none (earlier releases). It is earlier than every change.
 * No stream is read from it: all collections are converged, and the convergence sets another start time.
 */
const unknownPosition: StreamPosition = { kind: 'time', time: 1n }

export interface MoveParts {
  from: Metadata
  to: Metadata
  /** The sync's state on the new destination. */
  sync: SyncStore
  /** The verifier's state on the new destination. */
  verified: VerificationStore
  swapped: SyncRecord
  /** mongosyncID. The instance machine's context is stored under it. */
  id: string
  context: InstanceContext
  atStep: (step: string) => void
}

/**
 * Moves the stored state to the new destination. The caller holds the leases on both clusters. The write of the new sync
 * record swaps the direction. Before it, the old record is valid and the other writes have no effect. The next step,
 * `prepareDestination`, removes the metadata on the former destination. This function can be repeated after a stop at any
 * point.
 */
export async function moveMetadata(parts: MoveParts): Promise<void> {
  const { from, to, swapped, id, atStep } = parts
  const arrived = await to.loadSync()
  if (arrived && arrived.generation >= swapped.generation) {
    // Either an earlier attempt of this instance wrote the record and the reply was lost, or another instance wrote it.
    const stored = (await to.loadInstances()).get(id)
    const isPreparing = stored !== undefined && completed(stored).reversing === 'preparingDestination'
    if (arrived.generation === swapped.generation && isPreparing) return
    throw movedByAnother()
  }
  const current = await from.loadSync()
  if (current?.generation !== swapped.generation - 1) throw movedByAnother()

  atStep('reverseClear')
  await to.clear()
  await to.removeMove()
  atStep('reverseCopy')
  const reverse = (await from.loadPosition('reverse')) ?? unknownPosition
  const former = await from.loadPosition(0)
  assert(former, 'a committed sync has no position of its source')
  const entries = (await from.collections.load()).map(swapEntry)
  await to.collections.save(entries)
  await to.beginPartitions(swapped.partitions, reverse)
  if (swapped.configuration.verification.enabled) {
    // The verdict before canWrite found all documents equal. The streams from these positions contain all later changes.
    const proved = { ordinal: 0, source: 0, destination: 0, bytes: 0 }
    await parts.verified.saveRanges(entries.map(({ uuid }) => ({ collection: uuid, ...proved })))
    await to.savePosition(streamPartition.source, firstEpoch, reverse)
    await to.savePosition(streamPartition.destination, firstEpoch, former)
  }
  await to.savePosition('former', firstEpoch, former)
  // Includes absent instances, so that they continue with the reversed sync when they return.
  const instances = new Set([id, ...(await from.loadInstances()).keys()])
  for (const instance of instances) await to.saveInstance(instance, storable(reversedContext(parts.context)))
  // The sync machine's state was cleared above. If it has received an event since, another instance has moved the sync.
  if (!(await parts.sync.begin(reversedSync()))) throw movedByAnother()
  await to.createIndexes()
  // Moves audit entries of earlier processes and other instances. A failure here must not fail the reversal.
  await from.audit
    .read()
    .then((entries) => to.audit.add(entries))
    .catch(() => {})
  atStep('reverseSwitch')
  await to.saveSync(swapped)
}

/** True if a reversed stream begins at `unknownPosition`, because the commit stored no position. */
export async function beginsUnknown(metadata: Metadata): Promise<boolean> {
  return [...(await metadata.loadPartitions()).values()].some(({ time }) => time === unknownPosition.time)
}

/**
 * The record of the reversed sync. Its start time is the position that the commit stored before it enabled writes on
 * the present source. If the commit stored none, the start time does not change.
 */
export function swappedRecord(record: SyncRecord, reverse: StreamPosition | null): SyncRecord {
  return {
    configuration: swapConfiguration(record.configuration),
    sourceIdentity: record.destinationIdentity,
    destinationIdentity: record.sourceIdentity,
    startTime: reverse?.time ?? record.startTime,
    partitions: record.partitions,
    redis: record.redis,
    generation: record.generation + 1,
  }
}

function movedByAnother(): FatalError {
  return new FatalError(
    'LeaseLost',
    `reversing: another instance has already reversed this sync, and this one has stopped. Restart this process, which then joins the reversed sync. ${notLost.progress}`,
  )
}
