import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { aborted } from '../domain/deferred.ts'
import { LongWait } from '../domain/long-wait.ts'

export interface WatchRoleParts {
  coordination: Coordination
  peers: Peers
  /** True while the lease is lost and the next lease term has not begun. */
  isLeaseLost: () => boolean
}

/**
 * Waits until this instance coordinates. Meanwhile it reports the progress of the coordinator's verification.
 * @param report receives whether the coordinator's verifier has compared everything once
 * @returns true when this instance is to verify; false when the commit is decided, or when it was stopped
 */
export async function watchRole(
  { coordination, peers, isLeaseLost }: WatchRoleParts,
  report: (initiallyVerified: boolean) => void,
  stopped: AbortSignal,
): Promise<boolean> {
  const working = new LongWait(aborted(stopped))
  while (!stopped.aborted) {
    const changed = coordination.changed()
    // While the lease is lost, verification waits for the next lease term.
    if (!isLeaseLost()) {
      if (coordination.leading) {
        const sync = await peers.load()
        // In `replanning`, verification must not begin: its results are about to be removed, because collections are
        // converged again.
        if (!sync.matches('replanning')) {
          // Users write on the destination from the decision on, so both clusters no longer have to be equal.
          return !sync.hasTag('decided') && !stopped.aborted
        }
      } else if (coordination.coordinatorID !== null) {
        const sync = peers.isCurrent ? peers.sync : await peers.load()
        report(sync.context.initiallyVerified)
      }
    }
    await working.until(changed)
  }
  return false
}
