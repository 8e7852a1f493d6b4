import { describe, expect, it } from 'vitest'
import { transition } from 'xstate'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type NewFilter, type SyncContext, type SyncEvent } from '../../machines/sync-context.ts'
import { pathOf, type SyncSnapshot, stepOf, viewOf } from '../../machines/sync-view.ts'

/** Tests particular sequences of events. whole-sync.test.ts tests the properties of all sequences. */

const committing: Partial<SyncContext> = { attempt: 1, term: 1, request: { dryRun: false, maxSeconds: null, at: 1 } }
const worked = { term: 1, attempt: 1 }
const failure = { error: 'VerificationFailed', errorDescription: 'they differ' } as const

const at = (
  value: Parameters<typeof syncMachine.resolveState>[0]['value'],
  context: Partial<SyncContext> = committing,
) => syncMachine.resolveState({ value, context: { ...freshSync, ...context } })
const sent = (from: SyncSnapshot, ...events: SyncEvent[]): SyncSnapshot =>
  events.reduce((now, event) => (now.can(event) ? transition(syncMachine, now, event)[0] : now), from)

const aborted: SyncEvent = { type: 'commit.aborted', abortsBefore: 0, reason: null, rehearsal: null }
const request: SyncEvent = {
  type: 'commit.requested',
  request: { dryRun: false, maxSeconds: null, at: 2 },
  replaces: null,
  abortsBefore: 1,
}

describe('an abort', () => {
  it('is not completed by a report that the failed attempt before it was undone, because that leaves the source blocked', () => {
    const restoring = at('restoring')
    const undoing = sent(restoring, aborted, { type: 'commit.undone', aborts: 0, ...worked })
    expect(pathOf(undoing)).toBe('undoing')
    expect(pathOf(sent(undoing, { type: 'commit.undone', aborts: 1, ...worked }))).toBe('replicating')
  })

  it('may be followed at once by a commit, which ignores delayed reports about the aborted commit', () => {
    const undoing = sent(at({ committing: 'applying' }), aborted, request)
    expect(pathOf(undoing)).toBe('undoing')
    const again = sent(undoing, { type: 'commit.undone', aborts: 1, ...worked })
    expect([pathOf(again), again.context.attempt, again.context.commitTimestamp]).toEqual([
      'committing.gathering',
      2,
      null,
    ])
    const late: SyncEvent[] = [
      { type: 'commit.failed', failure, ...worked },
      { type: 'commit.renewed', ...worked },
      { type: 'commit.undone', aborts: 0, ...worked },
      aborted,
    ]
    expect(sent(again, ...late)).toBe(again)
  })

  it('is not cancelled by a request that was sent before it', () => {
    const early: SyncEvent = { ...request, abortsBefore: 0 }
    const undone = sent(at({ committing: 'gathering' }), aborted, { type: 'commit.undone', aborts: 1, ...worked })
    expect(pathOf(sent(undone, early))).toBe('replicating')
    expect(pathOf(sent(undone, request))).toBe('committing.gathering')
  })
})

describe('a convergence', () => {
  const requested: SyncEvent = { type: 'convergence.requested', scope: 'all', convergencesBefore: 0 }
  const planned: SyncEvent = { type: 'convergence.planned', startTime: '5', ...worked, convergences: 1 }
  const replicating = at('replicating', { term: 1, initiallyVerified: true })

  it('begins only once when several requests have the same reason', () => {
    const replanning = sent(replicating, requested, requested)
    expect([pathOf(replanning), stepOf(replanning), replanning.context.convergences]).toEqual([
      ...['replanning', 'replan'],
      1,
    ])
    const again = sent(replanning, planned, requested)
    expect([pathOf(again), again.context.convergences, again.context.startTime]).toEqual(['replicating', 1, '5'])
  })

  it('invalidates earlier verification results, even those that are reported later', () => {
    const initiallyVerified: SyncEvent = {
      type: 'verification.initiallyVerified',
      term: 1,
      attempt: 0,
      convergences: 0,
    }
    const replanning = sent(replicating, requested, initiallyVerified)
    expect(replanning.context.initiallyVerified).toBe(false)
    const converging = sent(replanning, planned, initiallyVerified)
    expect(converging.context.initiallyVerified).toBe(false)
    expect(sent(converging, { ...initiallyVerified, convergences: 1 } as SyncEvent).context.initiallyVerified).toBe(
      true,
    )
  })

  it('stays unplanned after a report about an earlier convergence or from an earlier term', () => {
    const second = sent(replicating, requested, planned, { ...requested, convergencesBefore: 1 } as SyncEvent)
    expect(pathOf(second)).toBe('replanning')
    expect(pathOf(sent(second, planned))).toBe('replanning')
    expect(pathOf(sent(second, { ...planned, convergences: 2, term: 0 } as SyncEvent))).toBe('replanning')
    expect(pathOf(sent(second, { ...planned, convergences: 2 } as SyncEvent))).toBe('replicating')
  })

  it('does not begin during or after a commit, and invalidates commit requests of instances that do not know of it', () => {
    for (const state of [{ committing: 'gathering' }, 'undoing', 'restoring', 'failed', 'committed'] as const) {
      expect(at(state).can(requested)).toBe(false)
    }
    const converging = sent(replicating, requested, planned)
    const commit: SyncEvent = { ...request, abortsBefore: 0 }
    expect(converging.can({ ...commit, convergences: 0 } as SyncEvent)).toBe(false)
    expect(converging.can({ ...commit, convergences: 1 } as SyncEvent)).toBe(true)
  })

  it('is shown to instances as a sync that is not initialised, until it is planned', () => {
    expect(viewOf(sent(replicating, requested), 1)).toMatchObject({ initialised: false, convergences: 1 })
    expect(viewOf(sent(replicating, requested, planned), 1)).toMatchObject({ initialised: true, convergences: 1 })
  })
})

describe('a new filter', () => {
  const all = { includeNamespaces: null, excludeNamespaces: null }
  const one = { ...all, includeNamespaces: [{ database: 'one' }] }
  const two = { ...all, excludeNamespaces: [{ database: 'two' }] }
  const requested = (convergencesBefore: number, filter?: NewFilter): SyncEvent => ({
    ...{ type: 'convergence.requested', scope: [], convergencesBefore },
    ...(filter && { filter }),
  })
  const planned = (convergences: number): SyncEvent => ({
    ...{ type: 'convergence.planned', startTime: `${convergences}`, ...worked, convergences },
  })
  const first = requested(0, { filters: one, before: all, dropExcluded: true })
  const second = requested(1, { filters: two, before: one, dropExcluded: false })
  const replicating = at('replicating', { term: 1 })

  it('is stored together with the request to plan it, and applies from the start time on', () => {
    const replanning = sent(replicating, first)
    expect(pathOf(replanning)).toBe('replanning')
    expect(replanning.context).toMatchObject({ filters: one, filterChange: { before: [all], dropExcluded: true } })
    const after = sent(replanning, planned(1))
    expect(pathOf(after)).toBe('replicating')
    expect(after.context).toMatchObject({ filters: one, filterChange: null })
    const resynced = sent(after, requested(1), planned(2))
    expect(resynced.context).toMatchObject({ filters: one, filterChange: null, startTime: '2' })
  })

  it('may be replaced before it is planned, and the replacement keeps the scope that is still to be planned', () => {
    const lost: SyncEvent = { type: 'convergence.requested', scope: ['a'], convergencesBefore: 0 }
    const early = sent(replicating, lost, requested(1, { filters: one, before: all, dropExcluded: true }))
    expect(early.context).toMatchObject({ scope: ['a'], filterChange: { before: [all] }, convergences: 2 })
    const begun: SyncEvent = { type: 'convergence.planBegun', ...worked, convergences: 1 }
    const replanning = sent(replicating, first, begun, second)
    expect(replanning.context).toMatchObject({
      ...{ filters: two, filterChange: { before: [all, one], dropExcluded: false }, convergences: 2 },
    })
    expect(pathOf(sent(replanning, planned(1)))).toBe('replanning')
    expect(pathOf(sent(replanning, planned(2)))).toBe('replicating')
  })

  it('does not become a former filter if it is replaced before its plan begins', () => {
    const replanning = sent(replicating, first, second)
    expect(replanning.context).toMatchObject({ filters: two, filterChange: { before: [all], dropExcluded: false } })
    const back = sent(replanning, requested(2, { filters: all, before: two, dropExcluded: true }))
    expect(back.context).toMatchObject({ filters: all, filterChange: { before: [all], dropExcluded: true } })
    // A delayed report about a former plan does not concern these filters.
    const delayed: SyncEvent = { type: 'convergence.planBegun', ...worked, convergences: 1 }
    expect(back.can(delayed)).toBe(false)
  })

  it('of an earlier release, which did not store whether its plan had begun, counts as a former filter', () => {
    const stored = { filters: one, filterChange: { before: [all], dropExcluded: true }, convergences: 1 }
    const after = sent(at('replanning', { term: 1, ...stored }), second)
    expect(after.context).toMatchObject({ filters: two, filterChange: { before: [all, one] } })
  })

  it('has no effect if it replaces an outdated filter, and a resync has no effect while a filter is not planned yet', () => {
    const replanning = sent(replicating, first)
    expect(replanning.can(first)).toBe(false)
    expect(replanning.can(requested(1))).toBe(false)
  })
})

it('a rehearsal is never decided', () => {
  const rehearsal = { ...committing, request: { dryRun: true, maxSeconds: null, at: 1 } }
  const decided: SyncEvent = { type: 'commit.decided', quietUntil: '8', ...worked }
  expect(pathOf(sent(at({ committing: 'deciding' }, rehearsal), decided))).toBe('committing.deciding')
  expect(pathOf(sent(at({ committing: 'deciding' }), decided))).toBe('decided.opening')
})

it('a failure after the decision is shown, and the decision stays', () => {
  const failed = sent(at({ decided: 'converting' }), { type: 'commit.failed', failure, ...worked })
  expect([pathOf(failed), failed.context.failure]).toEqual(['decided.converting', failure])
  const done = sent(failed, { type: 'commit.converted', ...worked })
  expect([pathOf(done), done.context.failure]).toEqual(['committed', null])
})

it('the view for an instance that joins late contains the commit timestamp as long as the commit can fail', () => {
  for (const state of ['applying', 'preparing', 'verifying', 'deciding'] as const) {
    const view = viewOf(at({ committing: state }, { ...committing, commitTimestamp: '7' }), 1)
    expect(view).toMatchObject({ commitTimestamp: '7', underWay: true })
  }
  expect(viewOf(at({ reversing: 'moving' }), 1).committed).toBe(true)
})

it('the coordinator has no step in replicating, failed, committed and reversing.moving', () => {
  const none = [at('replicating'), at('failed'), at('committed'), at({ reversing: 'moving' })]
  expect(none.map(stepOf)).toEqual([null, null, null, null])
})
