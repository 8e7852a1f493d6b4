import { canBeAborted, pathOf } from '../../machines/sync-view.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { RefusedError, StoppedError } from '../domain/errors.ts'
import type { PublicState } from '../domain/progress.ts'
import { storedForAll, wrongState } from './admit-command.ts'
import { LeasePatience } from './lease-patience.ts'
import type { SyncInstance } from './sync-instance.ts'

/** States in which an abort may be accepted. In the others, this instance takes part in no sync, or the commit is decided. */
const accepting: PublicState[] = ['RUNNING', 'PAUSED', 'COMMITTING', 'FAILED']
/** Time limit of a read of the stored state before an abort is passed on, ms. */
const readLimitMS = 5_000

/**
 * Aborts the commit for all instances. Resolves when the abort is stored.
 *
 * The stored state of the sync decides whether an abort is possible. An instance that has not received the commit can
 * therefore abort it too, which matters when the instances that have received it are gone. An instance that takes part
 * in a commit aborts only that commit.
 *
 * Throws RefusedError `WrongState` when the stored state has no commit that can still be aborted.
 * @param named identifies the commit to abort by the number of commits that were aborted before it; null: the commit
 * that is under way
 */
export async function abortCommit(sync: SyncInstance, named: number | null = null): Promise<void> {
  sync.refuseTakenOver()
  const { actor, session, state } = sync
  const snapshot = actor.getSnapshot()
  if (!session || !accepting.includes(state)) throw refused(sync)
  const { peers } = session
  let abortsBefore = named ?? (snapshot.can({ type: 'sync.abort' }) ? snapshot.context.abortsBefore : null)
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
  if (!isAborted) throw decided()
  actor.send({ type: 'sync.observed', sync: peers.view })
  await patience.bounded(sync.storing, 'it has taken effect in this instance, and is stored in the next lease term')
}

/**
 * Names the commit that an abort is for, before the abort is passed on. An instance may receive the abort half a minute
 * later, when another commit is under way. Reads the stored state, also while this instance has no lease. Throws
 * RefusedError ClusterUnreachable when the destination does not answer within five seconds.
 * @returns see `GivenCommand.abortsBefore`; undefined when this instance takes part in no sync
 */
export async function commitToAbort({ session, parts }: SyncInstance): Promise<number | null | undefined> {
  if (!session) return undefined
  const { destination, context, record } = session
  const limit = AbortSignal.timeout(readLimitMS)
  try {
    const stored = await new SyncStore(destination, context, record.generation).load(limit)
    return canBeAborted(stored) ? stored.context.aborts : null
  } catch (error) {
    if (!(error instanceof StoppedError) || parts.context.signal.aborted) throw error
    throw new RefusedError(
      'ClusterUnreachable',
      `${destination.name} did not answer within ${readLimitMS / 1_000} seconds, so the abort was not sent to any instance; check that cluster and the network, then send abort again`,
    )
  }
}

/**
 * Performs an abort that another instance has passed on. That abort is stored for all instances, so this instance may
 * have followed it already.
 * @param named see `GivenCommand.abortsBefore`. Undefined for an abort that an earlier release has passed on, which
 * aborts the commit that is under way
 */
export async function abortWithOthers(
  sync: SyncInstance,
  named: number | null | undefined,
  abort: (named: number | null) => Promise<void>,
): Promise<void> {
  const { actor, session, state } = sync
  const known = session?.peers.sync
  const isNextRequested = known !== undefined && canBeAborted(known)
  // The state that this instance last read may be older than the state that the sender read.
  const isFollowed = typeof named !== 'number' || (known !== undefined && named < known.context.aborts)
  if (state === 'RUNNING' && actor.getSnapshot().context.commitAborted && !isNextRequested && isFollowed) return
  if (named === null) {
    if (known?.hasTag('decided')) throw decided()
    throw new RefusedError(
      'WrongState',
      `no commit was under way when this abort was sent, so it aborts none; the state is ${state}`,
    )
  }
  try {
    await abort(named ?? null)
  } catch (error) {
    if (!session || !(error instanceof RefusedError) || error.refusal !== 'WrongState') throw error
    // `request` is null after an abort until the next commit is requested, and never after a decision.
    const { aborts, request } = session.peers.sync.context
    const isAborted = aborts > 0 && request === null && !session.peers.sync.hasTag('decided')
    if (!isAborted) throw error
  }
}

function decided(): RefusedError {
  return new RefusedError(
    'WrongState',
    'the commit is decided and can only be completed; wait until progress shows canWrite',
  )
}

function refused(sync: SyncInstance, stored?: string): RefusedError {
  const expected = 'every instance from the request of a commit until its decision'
  const refusal = wrongState(sync, 'abort', expected)
  return stored === undefined
    ? refusal
    : new RefusedError('WrongState', `${refusal.message}, and that of the sync is ${stored}`)
}
