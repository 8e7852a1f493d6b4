import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { aborted } from '../domain/deferred.ts'
import { LongWait } from '../domain/long-wait.ts'

export interface WatchRoleParts {
  coordination: Coordination
  team: Peers
  /** True while the lease is lost and the next lease term has not begun. */
  isLeaseLost: () => boolean
}

/**
 * Waits until this instance coordinates. Meanwhile it reports the verification of the coordinator.
 * @returns true when this instance is to verify; false when the commit is decided, or when it was stopped
 */
export async function watchRole(
  { coordination, team, isLeaseLost }: WatchRoleParts,
  seen: (hashed: boolean) => void,
  stopped: AbortSignal,
): Promise<boolean> {
  const working = new LongWait(aborted(stopped))
  while (!stopped.aborted) {
    const changed = coordination.changed()
    // After the lease was lost, verification waits for the next lease term.
    if (!isLeaseLost()) {
      // From the decision on users write on the destination, so both clusters no longer have to be equal.
      if (coordination.leading) return !(await team.load()).hasTag('decided') && !stopped.aborted
      if (coordination.coordinatorID !== null) seen((await team.load()).context.hashed)
    }
    await working.until(changed)
  }
  return false
}
