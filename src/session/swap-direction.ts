import { setTimeout as sleep } from 'node:timers/promises'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { StoppedError } from '../domain/errors.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { VerificationStore } from '../mongo/verification-store.ts'
import { moveMetadata, swappedRecord } from '../reverse/move-metadata.ts'
import type { SyncSession } from './sync-session.ts'

const swapPollMS = 200

/**
 * Waits until the metadata is on the new destination, and moves it there if this instance coordinates. Returns the
 * session of the new direction. Both leases are held meanwhile. The former session is closed afterwards. Throws
 * StoppedError when `signal` or the former session's signal is aborted.
 * @param prepare builds the session of the new direction
 */
export async function swapDirection(
  former: SyncSession,
  prepare: (record: SyncRecord) => SyncSession,
  instance: InstanceContext,
  signal: AbortSignal,
): Promise<SyncSession> {
  const { metadata: from, atStep } = former
  const { id } = former.coordination
  const swapped = swappedRecord(former.record, await from.loadPosition('reverse'))
  const session = prepare(swapped)
  const { source, destination, metadata } = session
  // The instance that moves the metadata is the coordinator of the former direction. If it loses its lease on the
  // former destination, another instance may have moved the metadata and may already work in the new direction.
  destination.fence = () => {
    former.lease.fence()
    session.lease.fence()
  }
  const stoppable = { ...former.context, signal: AbortSignal.any([former.context.signal, signal]) }
  const to = new Metadata(destination, stoppable)
  const verificationStore = new VerificationStore(destination, stoppable)
  const sync = new SyncStore(destination, stoppable, swapped.generation)
  try {
    await former.joinElection()
    await session.lease.acquire()
    // The coordinator moves the metadata when every instance that is alive or holds a lease is REVERSING. The other
    // instances wait for the new record.
    while ((await metadata.loadSync())?.generation !== swapped.generation) {
      const mayMove = (await former.peers.allAre('REVERSING')) && former.coordination.leading
      if (mayMove) {
        await from.announceMove(swapped)
        await former.peers.report({ type: 'reversal.started' })
        await moveMetadata({ from, to, sync, verified: verificationStore, swapped, id, context: instance, atStep })
      } else await Promise.race([former.coordination.changed(), sleep(swapPollMS, undefined, { ref: false })])
      if (stoppable.signal.aborted) throw new StoppedError()
    }
    destination.fence = () => session.lease.fence()
    await session.loadFigures()
    if (signal.aborted) throw new StoppedError()
  } catch (error) {
    await session.close()
    throw error
  }
  await former.close()
  // From here on, writes on both clusters are fenced by the lease of the new direction.
  source.fence = () => session.lease.fence()
  source.sessions = null
  return session
}
