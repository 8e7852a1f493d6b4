import { setTimeout as sleep } from 'node:timers/promises'
import type { Peers } from '../coordination/peers.ts'
import { StoppedError } from '../domain/errors.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { hexOfUuid } from '../mongo/uuid.ts'

export interface UnfollowedParts {
  peers: Peers
  context: RetryContext
}

/** How often the sync's state is read while this instance waits to be stopped, ms. */
const pollMS = 250

/**
 * Requests a convergence of collections for whose documents the change stream has no events. It never returns normally,
 * but throws StoppedError once `stopped` is aborted: when the instance stops replicating, for this convergence or for
 * another reason. The next replication reads the same change event again. It therefore requests the convergence again
 * if the request of another instance was stored in place of this one.
 *
 * No convergence can begin during a commit, and the commit cannot succeed without it. So the commit is aborted, and
 * `warnings` shows the reason.
 * @param collections by UUID on the source, each with its namespace there
 */
export async function convergeUnfollowed(
  { peers, context }: UnfollowedParts,
  collections: ReadonlyMap<string, string>,
  stopped: AbortSignal,
): Promise<never> {
  const names = [...new Set(collections.values())].join(', ')
  const scope = [...collections.keys()].map(hexOfUuid).sort()
  const reason = abortReason(names)
  let isStored = false
  while (!stopped.aborted) {
    const sync = await peers.load(stopped)
    const { aborts, convergences } = sync.context
    if (sync.matches('replicating') && !isStored) {
      context.journal?.('convergence requested', { all: false })
      const after = await peers.converge(scope, convergences, stopped)
      isStored = after.context.convergences > convergences
    } else if (sync.matches('committing')) await peers.abort(aborts, { reason, until: stopped })
    await sleep(pollMS, undefined, { signal: stopped, ref: false }).catch(() => {})
  }
  throw new StoppedError()
}

/** Explains why a commit is aborted when these collections must be converged. */
export function abortReason(names: string): string {
  return (
    `the commit was aborted because the source has documents in ${names} that the change stream does not report, or that must be copied again ` +
    '(a rename to a name that the filter includes, or to or from a name that namespaceRemap places in another database, $out, convertToCapped, cloneCollectionAsCapped, reshardCollection, movePrimary, a collection that was created again with its former UUID, ' +
    'or a new collection of a source older than 6.0). They are converged first; ' +
    'send commit again when canCommit is true'
  )
}
