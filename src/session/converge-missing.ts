import { findMissing } from '../definitions/missing-collections.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { RefusedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { retry } from '../mongo/retry.ts'
import { hexOfUuid } from '../mongo/uuid.ts'
import type { SyncSession } from './sync-session.ts'

/** Maximum number of namespaces in a message. */
const namedMax = 5

/**
 * Called by a resume after DestinationConflict or VerificationFailed. If somebody has dropped collections on the
 * destination, requests that these are created again and converged, because the sync would otherwise fail again. Does
 * nothing when no collection was dropped, and while another convergence is planned or a commit is undone.
 *
 * No convergence can begin during a commit, and the commit cannot succeed without it. So this throws RefusedError
 * WrongState, and the operator decides whether the commit is aborted.
 * @param accepted the command that this instance accepts now and that aborts the commit
 */
export async function convergeMissing(
  session: SyncSession,
  accepted: 'repair' | 'abort',
  until: AbortSignal,
): Promise<void> {
  const { source, destination, peers, metadata, context } = session
  const sync = await peers.load(until)
  const isCommitting = sync.matches('committing') || sync.matches('restoring') || sync.matches('failed')
  if (!sync.matches('replicating') && !isCommitting) return
  const entries = await metadata.collections.load()
  const limited = { ...context, signal: AbortSignal.any([context.signal, until]) }
  const missing = await retry('looking for dropped collections', limited, () =>
    findMissing({ source, destination }, entries),
  )
  if (missing.length === 0) return
  if (isCommitting) throw refusalFor(missing, accepted, destination)
  context.journal?.('convergence requested', { all: false })
  await peers.converge(missing.map(({ uuid }) => hexOfUuid(uuid)).sort(), sync.context.convergences, until)
}

export function refusalFor(
  missing: readonly CatalogEntry[],
  accepted: 'repair' | 'abort',
  destination: Pick<Cluster, 'names'>,
): RefusedError {
  const names = missing.map(({ database, name }) => destination.names.shown(namespace(database, name))).sort()
  const more = names.length > namedMax ? ` and ${names.length - namedMax} more` : ''
  const remedy =
    accepted === 'repair'
      ? 'Send repair, which aborts the commit, creates them again and copies them'
      : 'Send abort. If the state is RUNNING then, send resync for them; if it is FAILED, send resume. Both create them again and copy them'
  return new RefusedError(
    'WrongState',
    `a commit is under way, and it cannot succeed, because somebody has dropped on the destination: ${names.slice(0, namedMax).join(', ')}${more}. ${remedy}. ` +
      'Then send commit when canCommit is true',
  )
}
