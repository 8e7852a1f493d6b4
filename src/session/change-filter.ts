import type { SyncSnapshot } from '../../machines/sync-view.ts'
import { RefusedError } from '../domain/errors.ts'
import { currentFilters, type FilterRequest, sameFilters } from '../domain/filter-request.ts'
import { refuseContradictions } from '../domain/start-rules.ts'
import { refuseBeside } from './other-syncs.ts'
import { nextStep } from './resync.ts'
import { checkFilter } from './start-checks.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * Throws RefusedError when the sync cannot change to these filters: `InvalidRequest` and the refusals of a start with
 * these filters. It only reads.
 */
export async function refuseFilter(
  session: SyncSession,
  { dropExcluded: _, ...filters }: FilterRequest,
): Promise<void> {
  const { source, destination, record } = session
  const configuration = { ...record.configuration, ...filters }
  refuseContradictions(configuration)
  await checkFilter(configuration, source, destination)
  await refuseBeside(configuration, session)
}

/**
 * Replaces the filters of the sync, for all instances. Resolves when the new filters are stored, or at once when the
 * sync already has them. The coordinator then changes what is synced, in the sync's state `replanning`. If all
 * instances are PAUSED or FAILED, it does so when the first of them is resumed. Another request may replace the filters
 * before that.
 *
 * Throws RefusedError `WrongState` while a commit, a reversal or the start is under way. Nothing is changed then.
 */
export async function changeFilter(
  session: SyncSession,
  { dropExcluded, ...filters }: FilterRequest,
  until: AbortSignal,
): Promise<void> {
  const { peers, record, context } = session
  const sync = await peers.load(until)
  if (!sync.matches('replicating') && !sync.matches('replanning')) throw notReplicating(sync)
  const { convergences, filterChange } = sync.context
  const before = currentFilters(record.configuration, sync.context.filters)
  const isPlannedSo = filterChange === null || filterChange.dropExcluded === dropExcluded
  if (sameFilters(before, filters) && isPlannedSo) return
  const after = await peers.converge([], convergences, until, { filters, before, dropExcluded })
  // Another instance may have stored the same request, which fulfils this one too.
  const isStored =
    after.context.convergences > convergences &&
    sameFilters(currentFilters(record.configuration, after.context.filters), filters)
  if (!isStored) throw notReplicating(after)
  context.journal?.('filter changed', { dropExcluded })
}

function notReplicating(sync: SyncSnapshot): RefusedError {
  return new RefusedError(
    'WrongState',
    `filter is accepted while changes are applied, and not while the sync begins, is committed or reversed, or another request is stored; ${nextStep(sync)}`,
  )
}
