import { describe, expect, it } from 'vitest'
import type { SnapshotFrom } from 'xstate'
import { eventApplicationMachine } from '../../machines/event-application.ts'
import { pathOf } from '../../machines/sync-view.ts'
import { describeStep, everyStep, type Step, settlements, type Tried, underWay } from './explore.ts'

type Snapshot = SnapshotFrom<typeof eventApplicationMachine>

const restingStates = [
  'opening',
  'applying.claiming',
  'applying.owning.starting',
  'applying.owning.following',
  'applying.passing',
  'applying.waiting',
  'draining',
  'drained',
  'stopping',
  'stopped',
  'failed',
]

const error = new Error('it failed')
const failure = { error: 'InternalError', errorDescription: 'it failed' } as const

/**
 * Returns every event that can happen in a state: orders arrive at any time, and actors settle or report while they
 * run.
 */
function events(snapshot: Snapshot): Tried[] {
  const outputs = {
    barriers: [undefined],
    claim: [0, 2],
    // Without a commit timestamp there is no time that partitions could pass.
    pass: snapshot.context.commitTimestamp === null ? [false] : [false, true],
    change: [undefined],
    close: [null, failure],
  }
  return [
    { type: 'worker.drain' },
    { type: 'worker.drainTo', commitTimestamp: '7' },
    ...(pathOf(snapshot) === 'opening' ? [{ type: 'replication.opened' }, { type: 'replication.failed', error }] : []),
    ...(underWay(snapshot).includes('apply')
      ? [{ type: 'partitions.answered' }, { type: 'partitions.left' }, { type: 'partitions.failed', error }]
      : []),
    ...settlements(snapshot, outputs, error),
  ]
}

const steps = everyStep(eventApplicationMachine, events)

function everyStepShould(hold: (step: Step<Snapshot>) => boolean): void {
  expect(steps.filter((step) => !hold(step)).map(describeStep)).toEqual([])
}

describe('every step of event application', () => {
  it('leads to every state and nowhere else', () => {
    expect(new Set(steps.map(({ to }) => pathOf(to)))).toEqual(new Set(restingStates))
  })

  it('leads barriers as long as events may be applied', () => {
    everyStepShould(({ from, event, to }) => {
      if (!to.matches('applying')) return !underWay(to).includes('barriers')
      return (
        underWay(to).includes('barriers') || !underWay(from).includes('barriers') || event.type.includes('barriers')
      )
    })
  })

  it('applies only partitions that were claimed immediately before, and claims only while none is applied', () => {
    everyStepShould(({ from, event, to }) => {
      if (underWay(from).includes('apply') || !underWay(to).includes('apply')) return true
      return event.type === 'xstate.done.actor.claim' && event['output'] === 2
    })
    everyStepShould(({ to }) => !(underWay(to).includes('claim') && underWay(to).includes('apply')))
  })

  it('is drained or stopped only after all work is closed, or before any work has begun', () => {
    everyStepShould(({ from, event, to }) => {
      if (from.value === to.value || (!to.matches('drained') && !to.matches('stopped'))) return true
      return from.matches('opening') || event.type === 'xstate.done.actor.close'
    })
  })

  it('follows a drain order in every state in which it may still apply events', () => {
    everyStepShould(({ from, event, to }) => {
      if (event.type !== 'worker.drain') return true
      if (from.matches('opening')) return to.matches('drained')
      return !from.matches('applying') || to.matches('draining')
    })
  })

  it('ends by itself only when all partitions have passed the commit timestamp', () => {
    everyStepShould(({ from, event, to }) => {
      if (!from.matches('applying') || !to.matches('draining') || event.type === 'worker.drain') return true
      return (
        from.context.commitTimestamp !== null && event.type === 'xstate.done.actor.pass' && event['output'] === true
      )
    })
  })

  it('keeps the commit timestamp and the error', () => {
    everyStepShould(({ from, to }) => from.context.commitTimestamp === null || to.context.commitTimestamp !== null)
    everyStepShould(({ from, to }) => from.context.error === null || to.context.error === from.context.error)
  })
})
