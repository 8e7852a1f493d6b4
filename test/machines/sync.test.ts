import { describe, expect, it } from 'vitest'
import { transition } from 'xstate'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type SyncContext, type SyncEvent } from '../../machines/sync-context.ts'
import { pathOf, type SyncSnapshot, stepOf, viewOf } from '../../machines/sync-view.ts'

/** Single sequences; what holds in all of them is in whole-sync.test.ts. */

const asked: Partial<SyncContext> = { attempt: 1, term: 1, request: { dryRun: false, maxSeconds: null, at: 1 } }
const worked = { term: 1, attempt: 1 }
const failure = { error: 'VerificationFailed', errorDescription: 'they differ' } as const

const at = (value: Parameters<typeof syncMachine.resolveState>[0]['value'], context: Partial<SyncContext> = asked) =>
  syncMachine.resolveState({ value, context: { ...freshSync, ...context } })
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
  it('is not undone by what was undone for the attempt that had failed before it: the source would stay blocked', () => {
    const restoring = at('restoring')
    const undoing = sent(restoring, aborted, { type: 'commit.undone', aborts: 0, ...worked })
    expect(pathOf(undoing)).toBe('undoing')
    expect(pathOf(sent(undoing, { type: 'commit.undone', aborts: 1, ...worked }))).toBe('replicating')
  })

  it('may be followed by a commit at once, which takes no report of the one before', () => {
    const undoing = sent(at({ committing: 'applying' }), aborted, request)
    expect(pathOf(undoing)).toBe('undoing')
    const again = sent(undoing, { type: 'commit.undone', aborts: 1, ...worked })
    expect([pathOf(again), again.context.attempt, again.context.commitPoint]).toEqual(['committing.gathering', 2, null])
    const late: SyncEvent[] = [
      { type: 'commit.failed', failure, ...worked },
      { type: 'commit.renewed', ...worked },
      { type: 'commit.undone', aborts: 0, ...worked },
      aborted,
    ]
    expect(sent(again, ...late)).toBe(again)
  })

  it('is not forgotten by a request that was sent before it', () => {
    const early: SyncEvent = { ...request, abortsBefore: 0 }
    const undone = sent(at({ committing: 'gathering' }), aborted, { type: 'commit.undone', aborts: 1, ...worked })
    expect(pathOf(sent(undone, early))).toBe('replicating')
    expect(pathOf(sent(undone, request))).toBe('committing.gathering')
  })
})

it('a decision is never that of a rehearsal', () => {
  const rehearsal = { ...asked, request: { dryRun: true, maxSeconds: null, at: 1 } }
  const decided: SyncEvent = { type: 'commit.decided', quietUntil: '8', ...worked }
  expect(pathOf(sent(at({ committing: 'deciding' }, rehearsal), decided))).toBe('committing.deciding')
  expect(pathOf(sent(at({ committing: 'deciding' }), decided))).toBe('decided.opening')
})

it('a failure after the decision is told, and takes nothing back', () => {
  const failed = sent(at({ decided: 'converting' }), { type: 'commit.failed', failure, ...worked })
  expect([pathOf(failed), failed.context.failure]).toEqual(['decided.converting', failure])
  const done = sent(failed, { type: 'commit.converted', ...worked })
  expect([pathOf(done), done.context.failure]).toEqual(['committed', null])
})

it('an instance that comes late is shown the commit point as long as the commit can fail', () => {
  for (const state of ['applying', 'preparing', 'verifying', 'deciding'] as const) {
    const view = viewOf(at({ committing: state }, { ...asked, commitPoint: '7' }), 1)
    expect(view).toMatchObject({ commitPoint: '7', underWay: true })
  }
  expect(viewOf(at({ reversing: 'moving' }), 1).committed).toBe(true)
})

it('only what can fail for good, what rests, and what an instance moves has no step', () => {
  const none = [at('replicating'), at('failed'), at('committed'), at({ reversing: 'moving' })]
  expect(none.map(stepOf)).toEqual([null, null, null, null])
})
