import { type InstanceContext, storable, turnedContext } from '../../machines/instance-context.ts'
import { turnedSync } from '../coordination/stored-sync.ts'
import type { SyncStore } from '../coordination/sync-store.ts'
import { swapConfiguration, swapEntry } from '../domain/direction.ts'
import { assert, FatalError } from '../domain/errors.ts'
import type { StreamPosition } from '../mongo/change-stream.ts'
import type { Metadata, SyncRecord } from '../mongo/metadata.ts'
import type { VerificationStore } from '../mongo/verification-store.ts'
import { streamPartition } from '../verify/checkpoint.ts'

/** Whoever comes to own what is moved does so under a higher one. */
const firstEpoch = 0

export interface MoveParts {
  from: Metadata
  to: Metadata
  /** The sync's state on the new destination. */
  sync: SyncStore
  /** The verifier's state on the new destination. */
  verified: VerificationStore
  turned: SyncRecord
  /** mongosyncID, under which the machine's context is stored. */
  id: string
  context: InstanceContext
  atStep: (step: string) => void
}

/**
 * Moves what is stored to the new destination. Called with the leases on both clusters. Until the new record is there,
 * what was written means nothing and the old one counts; that one write is the turning point. What is left behind is
 * removed by the next step, so it may be repeated from any point.
 */
export async function moveMetadata(parts: MoveParts): Promise<void> {
  const { from, to, turned, id, atStep } = parts
  const arrived = await to.loadSync()
  if (arrived && arrived.generation >= turned.generation) {
    // An earlier attempt of ours whose answer was lost, or another instance.
    const stored = (await to.loadInstances()).get(id) as InstanceContext | undefined
    if (arrived.generation === turned.generation && stored?.reversing === 'adapting') return
    throw movedByAnother()
  }
  const standing = await from.loadSync()
  if (standing?.generation !== turned.generation - 1) throw movedByAnother()

  atStep('reverseClear')
  await to.clear()
  await to.forgetMove()
  atStep('reverseCopy')
  const reverse = await from.loadPosition('reverse')
  const former = await from.loadPosition(0)
  assert(reverse && former, 'a reversible sync was committed without the positions of a reversal')
  const entries = (await from.collections.load()).map(swapEntry)
  await to.collections.save(entries)
  await to.beginPartitions(turned.partitions, reverse)
  if (turned.configuration.verification.enabled) {
    // The verdict before canWrite has proved all of it: what changed since on either side is in the streams from there on.
    const proved = { ordinal: 0, source: 0, destination: 0, bytes: 0 }
    await parts.verified.saveRanges(entries.map(({ uuid }) => ({ collection: uuid, ...proved })))
    await to.savePosition(streamPartition.source, firstEpoch, reverse)
    await to.savePosition(streamPartition.destination, firstEpoch, former)
  }
  await to.savePosition('former', firstEpoch, former)
  // Also of those who are away: whoever comes back goes on with the reversed sync.
  const instances = new Set([id, ...(await from.loadInstances()).keys()])
  for (const instance of instances) await to.saveInstance(instance, storable(turnedContext(parts.context)))
  await parts.sync.begin(turnedSync())
  await to.createIndexes()
  // Of earlier processes and of others; each adds what it knows itself. Not worth a reversal.
  await from.audit
    .read()
    .then((entries) => to.audit.add(entries))
    .catch(() => {})
  atStep('reverseSwitch')
  await to.saveSync(turned)
}

/** The record of the reversed sync: it begins where writes were allowed on what is its source now. */
export function turnRecord(record: SyncRecord, reverse: StreamPosition | null): SyncRecord {
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
  return new FatalError('LeaseLost', 'another instance has reversed this sync; this one has stopped')
}
