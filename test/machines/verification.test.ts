import { describe, expect, it } from 'vitest'
import type { SnapshotFrom } from 'xstate'
import { pathOf } from '../../machines/sync-view.ts'
import { verificationMachine } from '../../machines/verification.ts'
import { FatalError } from '../../src/domain/errors.ts'
import { describeStep, everyStep, type Step, settlements, type Tried, underWay } from './explore.ts'

type Snapshot = SnapshotFrom<typeof verificationMachine>

const restingStates = [
  'waiting',
  'leading.awaitingEarlierRun',
  'leading.awaitingCopy',
  'leading.verifying.scanning',
  'leading.verifying.following',
  'leading.verifying.resolving',
  'leading.restarting',
  'leading.stopping',
  'stopped',
  'failed',
  'over',
]

const error = new Error('it failed')
const oplogLost = new FatalError('OplogWindowLost', 'gone')
const failure = { error: 'InternalError', errorDescription: 'it failed' } as const

/**
 * Returns every event that can happen in a state: the role is observed while the instance waits, and actors settle
 * while they run.
 */
function events(snapshot: Snapshot): Tried[] {
  const children = underWay(snapshot)
  const outputs = {
    awaitEarlierRun: [undefined],
    awaitCopy: [undefined],
    verify: [undefined],
    discardResults: [undefined],
    close: [null, failure],
  }
  const observed = [
    { type: 'role.taken' },
    { type: 'role.over' },
    { type: 'role.failed', failure },
    { type: 'role.failed', failure: null },
    { type: 'role.observed', initiallyVerified: true },
    { type: 'role.observed', initiallyVerified: false },
  ]
  const ofRun = ['verdict.requested', 'verdict.ended', 'verification.stop'].map((type) => ({ type }))
  return [
    ...(children.includes('role') ? observed : []),
    ...(children.includes('run') ? ofRun : []),
    ...(children.includes('verify')
      ? [{ type: 'scan.completed' }, { type: 'xstate.error.actor.verify', error: oplogLost, actorId: 'verify' }]
      : []),
    ...settlements(snapshot, outputs, error),
  ]
}

const steps = everyStep(verificationMachine, events, { enabled: true })

function everyStepShould(hold: (step: Step<Snapshot>) => boolean): void {
  expect(steps.filter((step) => !hold(step)).map(describeStep)).toEqual([])
}

describe('every step of the verification', () => {
  it('leads to every state and nowhere else', () => {
    expect(new Set(steps.map(({ to }) => pathOf(to)))).toEqual(new Set(restingStates))
  })

  it('verifies only during a run, and only after an earlier run and the copy have ended', () => {
    everyStepShould(({ to }) => !underWay(to).includes('verify') || underWay(to).includes('run'))
    everyStepShould(({ from, event, to }) => {
      if (underWay(from).includes('verify') || !underWay(to).includes('verify')) return true
      return event.type === 'xstate.done.actor.awaitCopy' || event.type === 'xstate.done.actor.discardResults'
    })
  })

  it('ends a run only after all work is closed', () => {
    everyStepShould(({ from, event, to }) => {
      if (!underWay(from).includes('run') || underWay(to).includes('run')) return true
      return event.type.endsWith('.actor.close')
    })
  })

  it('can be stopped in every state in which it has a run', () => {
    everyStepShould(({ event, to }) => event.type !== 'verification.stop' || pathOf(to) === 'leading.stopping')
  })

  it('compares everything again when an oplog was lost, and fails with any other error', () => {
    everyStepShould(({ event, to }) => {
      if (event.type !== 'xstate.error.actor.verify') return true
      return pathOf(to) === (event['error'] === oplogLost ? 'leading.restarting' : 'leading.stopping')
    })
  })

  it('keeps the first error', () => {
    everyStepShould(({ from, to }) => from.context.error === null || to.context.error === from.context.error)
  })

  it('follows changes after it has scanned everything, also when a commit asks for a verdict', () => {
    everyStepShould(({ to }) => pathOf(to) !== 'leading.verifying.scanning' || !to.context.scanned)
    everyStepShould(({ to }) => pathOf(to) !== 'leading.verifying.following' || to.context.scanned)
  })
})

it('a verification that is switched off does nothing', () => {
  const off = everyStep(verificationMachine, events, { enabled: false })
  expect(off).toEqual([])
})
