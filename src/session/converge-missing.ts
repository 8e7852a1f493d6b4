import { findMissing } from '../definitions/missing-collections.ts'
import { retry } from '../mongo/retry.ts'
import { hexOfUuid } from '../mongo/uuid.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * Called by a resume after DestinationConflict. If somebody has dropped collections on the destination, requests that
 * these are created again and converged, because the sync would otherwise fail again. Does nothing when there are none,
 * and while the sync is not replicating.
 */
export async function convergeMissing(session: SyncSession, until: AbortSignal): Promise<void> {
  const { source, destination, peers, metadata, context } = session
  const sync = await peers.load(until)
  if (!sync.matches('replicating')) return
  const entries = await metadata.collections.load()
  const limited = { ...context, signal: AbortSignal.any([context.signal, until]) }
  const missing = await retry('looking for dropped collections', limited, () =>
    findMissing({ source, destination }, entries),
  )
  if (missing.length === 0) return
  context.journal?.('convergence requested', { all: false })
  await peers.converge(missing.map(({ uuid }) => hexOfUuid(uuid)).sort(), sync.context.convergences, until)
}
