import { canBeAborted, pathOf } from '../../machines/sync-view.ts'
import { RefusedError } from '../domain/errors.ts'
import type { PublicState } from '../domain/progress.ts'
import { storedForAll, wrongState } from './admit-command.ts'
import { LeasePatience } from './lease-patience.ts'
import type { SyncInstance } from './sync-instance.ts'

/** In the other states this instance takes part in no sync, or the commit is decided. */
const accepting: PublicState[] = ['RUNNING', 'PAUSED', 'COMMITTING', 'FAILED']

/**
 * Aborts the commit for all instances. Resolves when the abort is stored.
 *
 * The stored state of the sync decides, so that an instance that has not received the commit can abort it too: the
 * instances that have received it may be gone. An instance that takes part in a commit aborts only that commit.
 *
 * Throws RefusedError `WrongState` when no commit is stored that can still be aborted.
 */
export async function abortCommit(sync: SyncInstance): Promise<void> {
  sync.refuseTakenOver()
  const { actor, session, state } = sync
  const snapshot = actor.getSnapshot()
  if (!session || !accepting.includes(state)) throw refused(sync)
  const { peers } = session
  let abortsBefore = snapshot.can({ type: 'sync.abort' }) ? snapshot.context.abortsBefore : null
  const patience = new LeasePatience('abort', sync)
  const isAborted = await storedForAll(sync, 'abort', patience, async (until) => {
    // A repetition in the next lease term aborts the same commit, because the first attempt may have been stored.
    if (abortsBefore === null) {
      const stored = await peers.load(until)
      if (!canBeAborted(stored)) throw refused(sync, pathOf(stored))
      abortsBefore = stored.context.aborts
    }
    return await peers.abort(abortsBefore, { until })
  })
  if (!isAborted) {
    throw new RefusedError(
      'WrongState',
      'the commit is decided and can only be completed; wait until progress shows canWrite',
    )
  }
  actor.send({ type: 'sync.observed', sync: peers.view })
  await patience.bounded(sync.storing, 'it has taken effect in this instance, and is stored in the next lease term')
}

/**
 * Performs an abort that another instance has passed on. That abort is stored for all instances, so this instance may
 * have followed it already.
 */
export async function abortWithOthers(sync: SyncInstance, abort: () => Promise<void>): Promise<void> {
  const { actor, session, state } = sync
  const isNextRequested = session ? canBeAborted(session.peers.sync) : false
  if (state === 'RUNNING' && actor.getSnapshot().context.commitAborted && !isNextRequested) return
  try {
    await abort()
  } catch (error) {
    if (!session || !(error instanceof RefusedError) || error.refusal !== 'WrongState') throw error
    // `request` is null after an abort until the next commit is requested, and never after a decision.
    const { aborts, request } = session.peers.sync.context
    const isAborted = aborts > 0 && request === null && !session.peers.sync.hasTag('decided')
    if (!isAborted) throw error
  }
}

function refused(sync: SyncInstance, stored?: string): RefusedError {
  const expected = 'every instance from the request of a commit until its decision'
  const refusal = wrongState(sync, 'abort', expected)
  return stored === undefined
    ? refusal
    : new RefusedError('WrongState', `${refusal.message}, and that of the sync is ${stored}`)
}
