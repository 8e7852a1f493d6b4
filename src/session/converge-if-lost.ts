import { unreachableText } from '../domain/error-text.ts'
import { RefusedError, StoppedError } from '../domain/errors.ts'
import { reachesStoredPositions } from '../mongo/reaches-back.ts'
import type { SyncSession } from './sync-session.ts'

/** How long a resume waits for the source to say whether its oplog reaches back to the stored position, ms. */
const probeMS = 10_000

/**
 * Called by a resume. If the source can no longer continue the change stream from the stored positions, requests that
 * all collections are converged again, from a new start time. If several instances are resumed, only the first request
 * has an effect. Each request contains the number of convergences that its instance has observed, and is ignored when
 * the stored number is higher. A resume that begins later finds the new positions, from which the source can continue.
 *
 * If the instance has FAILED with OplogWindowLost, this throws RefusedError: `WrongState` while a commit is under way,
 * which the operator must abort first, and `ClusterUnreachable` when the source does not answer. If the instance is only
 * paused, neither is an error here: the resume continues, as if the instance had not been paused.
 * @param isKnownLost true when the instance has FAILED with OplogWindowLost
 * @param limit aborted when the time limit for the answer of the source has passed
 */
export async function convergeIfLost(
  session: SyncSession,
  isKnownLost: boolean,
  until: AbortSignal,
  limit = AbortSignal.timeout(probeMS),
): Promise<void> {
  const { peers, context } = session
  const sync = await peers.load(until)
  const isCommitting = sync.matches('committing') || sync.matches('restoring') || sync.matches('failed')
  if (!sync.matches('replicating') && !(isKnownLost && isCommitting)) return
  let lastError: unknown = null
  const onRetry = (what: string, error: unknown): void => {
    lastError = error
    context.onRetry?.(what, error)
  }
  const answer = await probe(session, isKnownLost, until, limit, onRetry)
  if (answer === 'reaches back' || (answer === 'none' && !isKnownLost)) return
  if (answer === 'none') {
    throw new RefusedError(
      'ClusterUnreachable',
      `${lastError === null ? `${session.source.name} does not answer` : unreachableText(lastError)}: the source has not said within ` +
        `${probeMS / 1_000} seconds whether the sync can continue from the stored position; nothing was changed. ` +
        'Check that cluster and the network, then send resume again',
      { cause: lastError },
    )
  }
  if (isCommitting) {
    throw new RefusedError(
      'WrongState',
      'a commit is under way, and it cannot succeed: the oplog of the source no longer reaches back to the stored position. Send abort. ' +
        'If the state is FAILED after that, send resume: it converges all collections',
    )
  }
  context.journal?.('convergence requested', { all: true })
  await peers.converge('all', sync.context.convergences, until)
}

/** Asks the source whether it can continue from the stored positions. Resolves with 'none' when it does not answer in time. */
async function probe(
  { source, metadata, context }: SyncSession,
  isKnownLost: boolean,
  until: AbortSignal,
  limit: AbortSignal,
  onRetry: (what: string, error: unknown) => void,
): Promise<'reaches back' | 'lost' | 'none'> {
  const signal = AbortSignal.any([context.signal, until, limit])
  try {
    return (await reachesStoredPositions(source, metadata, { ...context, signal, onRetry })) ? 'reaches back' : 'lost'
  } catch (error) {
    if (until.aborted || context.signal.aborted) throw error
    // A StoppedError means that the time limit has passed. A paused instance ignores other failures too: they happen
    // again when it continues, and are handled then.
    if (error instanceof StoppedError || !isKnownLost) return 'none'
    throw error
  }
}
