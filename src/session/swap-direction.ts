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

const swapPollMS = 200

export interface SwapDirectionParts {
  clusters: Record<ClusterName, Cluster>
  /** The work in the direction that ends, and its metadata. */
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
 * Moves the metadata to the new destination and returns the work of the new direction. Both leases are held during the
 * move. The work of the former direction is closed afterwards. Throws StoppedError when `left` is aborted.
 */
export async function swapDirection(
  parts: SwapDirectionParts,
  left: AbortSignal,
): Promise<{ work: SyncWork; metadata: Metadata }> {
  const { former, from, instance, id, atStep } = parts
  const turned = swappedRecord(former.record, await from.loadPosition('reverse'))
  const { work, metadata } = parts.prepare(turned)
  const destination = parts.clusters[turned.configuration.destination]
  // The instance that moves the metadata coordinates the former direction. If it loses that lease, another instance may
  // have moved the metadata and may already be at work.
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
    // The coordinator moves the metadata when all instances are REVERSING; the others wait for the new record.
    while ((await metadata.loadSync())?.generation !== turned.generation) {
      const mayMove = (await former.team.allAre('REVERSING')) && former.coordination.leading
      if (mayMove) {
        await from.announceMove(turned)
        await former.team.report({ type: 'reversal.begun' })
        await moveMetadata({ from, to, sync, verified, swapped: turned, id, context: instance, atStep })
      } else await Promise.race([former.coordination.changed(), sleep(swapPollMS, undefined, { ref: false })])
      if (whileHere.signal.aborted) throw new StoppedError()
    }
    destination.fence = () => work.lease.fence()
    await work.loadFigures()
    if (left.aborted) throw new StoppedError()
  } catch (error) {
    await work.close()
    throw error
  }
  await former.close()
  // From here on, writes on both clusters are fenced by the lease of the new direction.
  const source = parts.clusters[turned.configuration.source]
  source.fence = () => work.lease.fence()
  source.sessions = null
  return { work, metadata }
}
