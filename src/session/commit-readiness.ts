import { commitLagMaxSeconds } from '../domain/commit-request.ts'
import type { SyncWork } from './sync-work.ts'

export interface ReadinessSources {
  work: SyncWork
  lagTimeSeconds: number | null
}

export interface CommitRefusal {
  /** Why, and what to do. */
  reason: string
  /** It is over by itself within moments: when the servers have answered. */
  passesSoon: boolean
}

/** Said with every progress while it lasts: a coordinator that fails with it tries it again. */
export const undoing = 'the last commit was aborted, and what it had changed is still being taken back'
const untilReady = 'wait until progress shows canCommit true'

/**
 * Why a commit is refused by an instance that has copied and verified everything once; null where it begins at once. `canCommit` and
 * the command go by the same.
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
      `${untilReady}, or lessen the load on the source. Nothing is lost, and the sync goes on`
    return { reason, passesSoon: false }
  }
  return null
}

function soon(what: string): CommitRefusal {
  return { reason: `${what}; ${untilReady}`, passesSoon: true }
}

/** An oplog that no longer reaches back to a stored position is FAILED, or compared from the beginning, as soon as that is known. */
function streamsContinue({ coordination, record, replication, verification }: SyncWork): boolean {
  if (!replication.present?.events?.continues) return false
  return !coordination.leading || !record.configuration.verification.enabled || verification.continues
}
