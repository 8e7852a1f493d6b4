import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { LongWait } from '../domain/long-wait.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Verification } from './verification.ts'

export interface VerifyWhileLeadingParts {
  configuration: StartConfiguration
  coordination: Coordination
  team: Peers
  verification: Verification
  /** The lease is lost, and the next life has not begun. */
  isDead: () => boolean
}

/**
 * Verifies while this instance coordinates; else only tells how far the coordinator is. Works until stopped, rejects on a
 * failure.
 */
export async function verifyWhileLeading(
  { configuration, coordination, team, verification, isDead }: VerifyWhileLeadingParts,
  report: (what: 'hashed' | 'restarted') => void,
  stopped: AbortSignal,
): Promise<void> {
  if (!configuration.verification.enabled) return
  let hashed = false
  const working = new LongWait(aborted(stopped))
  const tell = (now: boolean): void => {
    if (now !== hashed) report(now ? 'hashed' : 'restarted')
    hashed = now
  }
  while (!stopped.aborted) {
    const changed = coordination.changed()
    // Begun anew after its lease was lost: not before it is in the next life.
    if (isDead()) {
      await working.until(changed)
      continue
    }
    if (coordination.leading) {
      // From the decision on users write on the destination, and that is no difference.
      if ((await team.load()).hasTag('decided')) return
      if (stopped.aborted) return
      const stop = (): void => void verification.stop()
      stopped.addEventListener('abort', stop, { once: true })
      const publish = (what: 'hashed' | 'restarted'): void => {
        team.reportLeading({ type: `verification.${what}` }).catch(() => {}) // told again with the next change
        tell(what === 'hashed')
      }
      return await verification.run(configuration, publish)
    }
    if (coordination.coordinatorID !== null) tell((await team.load()).context.hashed)
    await working.until(changed)
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}
