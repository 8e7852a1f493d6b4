import { canBeAborted, type SyncSnapshot } from '../../machines/sync-view.ts'
import { RefusedError } from '../domain/errors.ts'
import { type NamespaceName, namespace } from '../domain/namespace.ts'
import { hexOfUuid } from '../mongo/uuid.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * Requests that these collections are converged again, for all instances. Resolves when the request is stored.
 *
 * Throws RefusedError `InvalidRequest`, which names the field, when a namespace is not a collection of the sync. Throws
 * RefusedError `WrongState` while the sync is not replicating. Nothing is changed in either case.
 */
export async function resync(
  session: SyncSession,
  namespaces: readonly NamespaceName[],
  until: AbortSignal,
): Promise<void> {
  const { peers, metadata, context } = session
  const sync = await peers.load(until)
  if (!sync.matches('replicating')) throw notReplicating(sync)
  const entries = await metadata.collections.load()
  const known = new Map(entries.map(({ database, name, uuid }) => [namespace(database, name), uuid]))
  const uuids = namespaces.map(({ database, collection }, at) => {
    const uuid = known.get(namespace(database, collection))
    if (uuid !== undefined) return uuid
    throw new RefusedError(
      'InvalidRequest',
      `namespaces[${at}]: ${namespace(database, collection)} is not a collection of this sync. Views have no documents, and time-series collections are not synced; ` +
        'GET /api/v1/collections lists the collections',
    )
  })
  const scope = [...new Set(uuids.map(hexOfUuid))].sort()
  const { convergences } = sync.context
  context.journal?.('convergence requested', { all: false })
  const after = await peers.converge(scope, convergences, until)
  // Another instance may have stored a request that covers these collections. That fulfils this request too.
  const isStored = after.context.convergences > convergences && coversScope(after.context.scope, scope)
  if (!isStored) throw notReplicating(after)
}

/** True if the stored request for a convergence names all collections, or exactly the requested ones. */
export function coversScope(stored: string[] | 'all' | null, requested: string[]): boolean {
  return stored === 'all' || (stored !== null && stored.join() === requested.join())
}

function notReplicating(sync: SyncSnapshot): RefusedError {
  return new RefusedError(
    'WrongState',
    `resync is accepted while changes are applied, and not while a commit is under way or another convergence is being prepared; ${nextStep(sync)}`,
  )
}

/** Advises the operator when the sync does not accept a request for a convergence now. */
export function nextStep(sync: SyncSnapshot): string {
  const isCommitting = canBeAborted(sync) && !sync.matches('undoing')
  return isCommitting
    ? 'a commit is under way: send it again after the commit, or send abort first'
    : 'send it again soon'
}
