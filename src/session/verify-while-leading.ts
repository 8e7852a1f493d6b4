import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { aborted } from '../domain/deferred.ts'
import { LongWait } from '../domain/long-wait.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Verification } from './verification.ts'

export interface VerifyWhileLeadingParts {
  configuration: StartConfiguration
  coordination: Coordination
  team: Peers
  verification: Verification
  /** True while the lease is lost and the next lease term has not begun. */
  isLeaseLost: () => boolean
}

/**
 * Verifies while this instance coordinates. Otherwise it only reports the coordinator's progress. Runs until stopped;
 * rejects on a failure.
 */
export async function verifyWhileLeading(
  { configuration, coordination, team, verification, isLeaseLost }: VerifyWhileLeadingParts,
  report: (what: 'hashed' | 'restarted') => void,
  stopped: AbortSignal,
): Promise<void> {
  if (!configuration.verification.enabled) return
  let hashed = false
  const working = new LongWait(aborted(stopped))
  const reportChange = (now: boolean): void => {
    if (now !== hashed) report(now ? 'hashed' : 'restarted')
    hashed = now
  }
  while (!stopped.aborted) {
    const changed = coordination.changed()
    // After the lease was lost, verification waits for the next lease term.
    if (isLeaseLost()) {
      await working.until(changed)
      continue
    }
    if (coordination.leading) {
      // From the decision on users write on the destination, so both clusters no longer have to be equal.
      if ((await team.load()).hasTag('decided')) return
      if (stopped.aborted) return
      const stop = (): void => void verification.stop()
      stopped.addEventListener('abort', stop, { once: true })
      const publish = (what: 'hashed' | 'restarted'): void => {
        team.reportLeading({ type: `verification.${what}` }).catch(() => {}) // the next change reports it again
        reportChange(what === 'hashed')
      }
      return await verification.run(configuration, publish)
    }
    if (coordination.coordinatorID !== null) reportChange((await team.load()).context.hashed)
    await working.until(changed)
  }
}
