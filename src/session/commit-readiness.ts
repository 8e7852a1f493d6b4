import { setTimeout as sleep } from 'node:timers/promises'
import { commitLagMaxSeconds } from '../domain/commit-request.ts'
import { RefusedError } from '../domain/errors.ts'
import type { SyncInstance } from './sync-instance.ts'
import type { SyncSession } from './sync-session.ts'

export interface ReadinessSources {
  work: SyncSession
  lagTimeSeconds: number | null
}

export interface CommitRefusal {
  /** Why the commit is refused, and what to do. */
  reason: string
  /** True when the reason passes by itself within moments, once the servers have answered. */
  passesSoon: boolean
}

/** Warning shown in progress while an aborted commit is being undone. A coordinator that fails to undo it retries. */
export const undoing = 'the last commit was aborted, and what it had changed is still being taken back'
const untilReady = 'wait until progress shows canCommit true'

/**
 * Why an instance that has copied and verified everything once refuses a commit; null when the commit can begin at
 * once. Both `canCommit` and the command use this.
 */
export function refusalOfCommit({ work, lagTimeSeconds }: ReadinessSources): CommitRefusal | null {
  if (work.team.sync.matches('undoing')) return { reason: `${undoing}; ${untilReady}`, passesSoon: false }
  if (!work.figures.knowsTime) {
    return soon('the sync has just begun to run again, and how far behind it is is not known yet')
  }
  if (!streamsContinue(work)) {
    return soon(
      'the sync has just begun to run again, and the servers have not answered yet with the change stream from the stored position',
    )
  }
  if (lagTimeSeconds !== null && lagTimeSeconds > commitLagMaxSeconds) {
    const reason =
      `the application of changes is ${lagTimeSeconds} seconds behind, and a commit is accepted up to ${commitLagMaxSeconds}; ` +
      `${untilReady}, or reduce the load on the source. Nothing is lost, and the sync goes on`
    return { reason, passesSoon: false }
  }
  return null
}

/** How long a commit waits for a refusal that passes by itself, and how often it checks, ms. */
const readinessPatienceMS = 3_000
const readinessPollMS = 20

/**
 * Waits for a refusal that passes within moments: instances receive the same command one after another, and the events
 * of a partition that changes its owner in between are read again. Throws RefusedError CannotCommit when the refusal
 * does not pass.
 */
export async function untilReadyToCommit(sync: SyncInstance): Promise<void> {
  const began = performance.now()
  for (;;) {
    const { session } = sync
    const refusal = session && refusalOfCommit({ work: session, lagTimeSeconds: sync.progress().lagTimeSeconds })
    if (!refusal) return
    if (!refusal.passesSoon || performance.now() - began > readinessPatienceMS) {
      throw new RefusedError('CannotCommit', refusal.reason)
    }
    await sleep(readinessPollMS)
  }
}

function soon(what: string): CommitRefusal {
  return { reason: `${what}; ${untilReady}`, passesSoon: true }
}

/**
 * True when the change streams continue from the stored positions. If an oplog no longer reaches back to one, the sync
 * is about to fail or to verify everything again.
 */
function streamsContinue({ coordination, record, runs, verification }: SyncSession): boolean {
  if (!runs.present?.events?.continues) return false
  return !coordination.leading || !record.configuration.verification.enabled || verification.continues
}
