import { setTimeout as sleep } from 'node:timers/promises'
import { commitLagMaxSeconds } from '../domain/commit-request.ts'
import { RefusedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import type { SyncInstance } from './sync-instance.ts'
import type { SyncSession } from './sync-session.ts'

export interface ReadinessSources {
  session: SyncSession
  lagTimeSeconds: number | null
}

export interface CommitRefusal {
  /** Why the commit is refused, and what to do. */
  reason: string
  /** True when the reason disappears within moments, once the servers have answered. */
  passesSoon: boolean
}

/** The warning in `progress` while an aborted commit is being undone. A coordinator that fails to undo it retries. */
export const undoing = 'the last commit was aborted, and its changes are still being undone'
const untilReady = 'wait until progress shows canCommit true'

/**
 * Returns why an instance refuses a commit; null when the commit can begin now. Call it only when the instance has
 * copied and verified everything once. Both `canCommit` and the command use this function.
 */
export function refusalOfCommit({ session, lagTimeSeconds }: ReadinessSources): CommitRefusal | null {
  if (session.peers.sync.matches('undoing')) return { reason: `${undoing}; ${untilReady}`, passesSoon: false }
  if (session.peers.sync.matches('replanning')) {
    return { reason: `collections are being prepared to be converged; ${untilReady}`, passesSoon: false }
  }
  const [resharding] = session.runs.current?.resharding ?? []
  if (resharding) {
    const reason = `${resharding} is being resharded on the source (reshardCollection, moveCollection or unshardCollection), and is converged when that has ended; ${untilReady}`
    return { reason, passesSoon: false }
  }
  const awaiting = (session.runs.current?.catalog.entries() ?? []).filter((entry) => entry.awaitsIndexes)
  const [first] = awaiting
  if (first) {
    const others = awaiting.length === 1 ? '' : ` and of ${awaiting.length - 1} more`
    const reason =
      `the indexes of ${namespace(first.database, first.name)}${others} are not built yet, which buildIndexes delays until a collection is ` +
      `copied; ${untilReady} (indexBuilding shows how far the builds are)`
    return { reason, passesSoon: false }
  }
  if (!session.figures.knowsTime) {
    return soon('the sync has just resumed, and its lag is not known yet')
  }
  if (!streamsContinue(session)) {
    return soon(
      'the sync has just resumed, and the servers have not yet answered with the change streams from the stored positions',
    )
  }
  if (lagTimeSeconds !== null && lagTimeSeconds > commitLagMaxSeconds) {
    const reason =
      `the application of changes is ${lagTimeSeconds} seconds behind, and a commit is accepted up to ${commitLagMaxSeconds}; ` +
      `${untilReady}, or reduce the load on the source. Nothing is lost, and the sync continues`
    return { reason, passesSoon: false }
  }
  return null
}

/** How long a commit waits for a refusal with `passesSoon` to disappear, and how often it checks. */
const readinessPatienceMS = 3_000
const readinessPollMS = 20

/**
 * Waits until a refusal that disappears within moments has disappeared. Such a refusal is expected: instances receive
 * the same command one after another, and the events of a partition that changes its owner in between are read again.
 * Throws RefusedError CannotCommit when the refusal remains.
 */
export async function untilReadyToCommit(sync: SyncInstance): Promise<void> {
  const began = performance.now()
  for (;;) {
    const { session } = sync
    const refusal = session && refusalOfCommit({ session, lagTimeSeconds: sync.progress().lagTimeSeconds })
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
 * True when the change streams continue from the stored positions. If an oplog no longer reaches back to such a
 * position, the sync is about to fail or to verify everything again.
 */
function streamsContinue({ coordination, record, runs, verification }: SyncSession): boolean {
  if (!runs.current?.events?.continues) return false
  return !coordination.leading || !record.configuration.verification.enabled || verification.continues
}
