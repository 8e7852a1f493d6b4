import { setTimeout as sleep } from 'node:timers/promises'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { StoppedError } from '../domain/errors.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { VerificationStore } from '../mongo/verification-store.ts'
import { moveMetadata, swappedRecord } from '../reverse/move-metadata.ts'
import type { SyncWork } from './sync-work.ts'

const turnPollMS = 200

export interface SwapDirectionParts {
  clusters: Record<ClusterName, Cluster>
  /** The work in the direction that ends here, and where it is stored. */
  former: SyncWork
  from: Metadata
  prepare: (record: SyncRecord) => { work: SyncWork; metadata: Metadata }
  /** mongosyncID. */
  id: string
  instance: InstanceContext
  context: RetryContext
  atStep: (step: string) => void
}

/**
 * Both leases are held while what is stored moves; from then on the new direction's work is this instance's. The former
 * direction's is closed then.
 */
export async function swapDirection(
  parts: SwapDirectionParts,
  left: AbortSignal,
): Promise<{ work: SyncWork; metadata: Metadata }> {
  const { former, from, instance, id, atStep } = parts
  const turned = swappedRecord(former.record, await from.loadPosition('reverse'))
  const { work, metadata } = parts.prepare(turned)
  const destination = parts.clusters[turned.configuration.destination]
  // Whoever moves leads the former direction; with that lease lost, another may have moved, and be at work already.
  destination.fence = () => {
    former.lease.fence()
    work.lease.fence()
  }
  const whileHere = { ...parts.context, signal: AbortSignal.any([parts.context.signal, left]) }
  const to = new Metadata(destination, whileHere)
  const verified = new VerificationStore(destination, whileHere)
  const sync = new SyncStore(destination, whileHere, turned.generation)
  try {
    await former.lead()
    await work.lease.acquire()
    // One moves what is stored, when all have come to this point; the others wait for the new record.
    while ((await metadata.loadSync())?.generation !== turned.generation) {
      const mayMove = (await former.team.allAre('REVERSING')) && former.coordination.leading
      if (mayMove) {
        await from.announceMove(turned)
        await former.team.report({ type: 'reversal.begun' })
        await moveMetadata({ from, to, sync, verified, swapped: turned, id, context: instance, atStep })
      } else await Promise.race([former.coordination.changed(), sleep(turnPollMS, undefined, { ref: false })])
      if (whileHere.signal.aborted) throw new StoppedError()
    }
    destination.fence = () => work.lease.fence()
    await work.look()
    if (left.aborted) throw new StoppedError()
  } catch (error) {
    await work.close()
    throw error
  }
  await former.close()
  // From here on the new direction's lease is what allows writes on either cluster.
  const source = parts.clusters[turned.configuration.source]
  source.fence = () => work.lease.fence()
  source.sessions = null
  return { work, metadata }
}
