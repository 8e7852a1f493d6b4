import { setTimeout as sleep } from 'node:timers/promises'
import { repairedMax } from '../commit/repair.ts'
import { RefusedError, StoppedError } from '../domain/errors.ts'
import { hexOfUuid } from '../mongo/uuid.ts'
import { storedForAll } from './admit-command.ts'
import { LeasePatience } from './lease-patience.ts'
import { coversScope } from './resync.ts'
import type { SyncInstance } from './sync-instance.ts'
import type { SyncSession } from './sync-session.ts'

/** How often the sync's state is read while the aborted commit is being undone, ms. */
const pollMS = 250
/** How long a repair waits until the aborted commit is undone. */
const limitMinutes = 30
/** Maximum number of names in a message. */
const namedMax = 5

/**
 * Ends a repair that cannot make these collections equal in the failed commit. Aborts the commit as `abort` does and
 * waits until the commit is undone, because only a sync that replicates accepts a convergence. Then requests that the
 * collections are converged. Resolves when the request is stored.
 *
 * The coordinator undoes the commit, and every instance takes part in that. If one of them hangs but still renews its
 * lease, the wait ends with RefusedError WrongState, which names the instance that the operator can stop.
 *
 * If this process dies after the abort, no convergence is requested. The verification of the next commit finds the same
 * differences.
 * @param collections by UUID on the source, each with its namespace there
 * @param limit aborted when the time limit of the wait has passed
 */
export async function convergeInstead(
  sync: SyncInstance,
  session: SyncSession,
  collections: ReadonlyMap<string, string>,
  limit = AbortSignal.timeout(limitMinutes * 60_000),
): Promise<void> {
  const { actor, parts } = sync
  const named = shorten([...collections.values()].sort())
  const before = actor.getSnapshot().context.failure
  for (;;) {
    const patience = new LeasePatience('repair', sync)
    const request = (until: AbortSignal): Promise<boolean> => requestOrAbort(session, collections, named, until)
    if (await storedForAll(sync, 'repair', patience, request)) return
    actor.send({ type: 'sync.observed', sync: session.peers.view })
    const { failure } = actor.getSnapshot().context
    if (failure && failure !== before) {
      throw new RefusedError(
        'WrongState',
        `repair has aborted the commit in order to converge ${named}, and the sync has failed with ${failure.error} since then. Remove that cause, send resume, ` +
          'then send resync for these collections',
      )
    }
    if (limit.aborted) throw notUndone(session, named)
    await sleep(pollMS, undefined, { signal: parts.context.signal, ref: false }).catch(() => {
      throw new StoppedError()
    })
  }
}

/** Returns true when the convergence is requested, and false when the commit has to be undone first. */
async function requestOrAbort(
  { peers, context }: SyncSession,
  collections: ReadonlyMap<string, string>,
  named: string,
  until: AbortSignal,
): Promise<boolean> {
  const sync = await peers.load(until)
  const { aborts, convergences } = sync.context
  if (sync.hasTag('decided')) {
    throw new RefusedError('WrongState', 'another instance has decided the commit in the meantime')
  }
  if (sync.matches('replicating')) {
    context.journal?.('convergence requested', { all: false })
    const scope = [...collections.keys()].map(hexOfUuid).sort()
    const after = await peers.converge(scope, convergences, until)
    // A request of another instance may have been stored first.
    return after.context.convergences > convergences && coversScope(after.context.scope, scope)
  }
  if (!sync.matches('undoing') && !sync.matches('replanning'))
    await peers.abort(aborts, { reason: reasonFor(named), until })
  return false
}

function notUndone({ peers, coordination }: SyncSession, named: string): RefusedError {
  const coordinator = coordination.coordinatorID
  const awaited = peers.waitingFor.length > 0 ? peers.waitingFor : coordinator === null ? [] : [coordinator]
  const hangs = awaited.length === 0 ? 'no instance coordinates' : `it waits for ${shorten(awaited)}`
  return new RefusedError(
    'WrongState',
    `repair has aborted the commit in order to converge ${named}, but that commit is not undone after ${limitMinutes} minutes: ${hangs}. ` +
      'If progress of that instance shows no work, end its process: another instance takes over when its lease has expired. ' +
      'Then send resync for these collections',
  )
}

function reasonFor(named: string): string {
  return (
    `the commit was aborted because repair has to converge ${named} (dropped on the destination by somebody else, or more than ` +
    `${repairedMax.toLocaleString('en')} differences); send commit again when canCommit is true`
  )
}

function shorten(names: string[]): string {
  const more = names.length > namedMax ? ` and ${names.length - namedMax} more` : ''
  return `${names.slice(0, namedMax).join(', ')}${more}`
}
