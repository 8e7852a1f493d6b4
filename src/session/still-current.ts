import { both } from '../domain/in-parallel.ts'
import type { SyncSession } from './sync-session.ts'

/** Returns false when other instances reversed the sync while this one waited for its lease. */
export async function isCurrent(session: SyncSession): Promise<boolean> {
  const stored = await session.metadata.loadSync()
  return stored?.generation === session.record.generation
}

/**
 * Like `isCurrent`, but reads once this instance holds the lease. The caller runs this while it waits until it knows
 * which instance coordinates.
 */
export async function isCurrentWhenHeld(session: SyncSession): Promise<{ epoch: number; isCurrent: boolean }> {
  await session.hold()
  const { epoch } = session.lease
  const [isStillCurrent] = await both(isCurrent(session), session.preload())
  return { epoch, isCurrent: isStillCurrent }
}
