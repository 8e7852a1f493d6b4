import { describe, expect, it } from 'vitest'
import { SimulatedClock } from 'xstate'
import type { InstanceContext } from '../../machines/instance-context.ts'
import {
  type AnyEvent,
  begin,
  commands,
  commit,
  configuration,
  failure,
  next,
  stateOf,
  stored,
  syncObserved,
  takenOver,
} from './instance-model.ts'
import { StubWorkers } from './stub-workers.ts'

describe('a sync', () => {
  it('without faults leads to COMMITTED', () => {
    const events: AnyEvent[] = [
      commands[0] as AnyEvent,
      syncObserved('initialising'),
      syncObserved('replicating'),
      { type: 'copy.completed' },
      commit,
      syncObserved('gathering'),
      syncObserved('applying'),
      { type: 'events.reached' },
      syncObserved('preparing'),
      syncObserved('opening'),
      syncObserved('converting'),
      syncObserved('committed'),
      { type: 'xstate.done.actor.leave', output: undefined },
    ]
    const passed: string[] = []
    let snapshot = begin()
    for (const event of events) {
      snapshot = next(snapshot, event)
      passed.push(stateOf(snapshot))
    }
    expect(passed).toEqual([
      'syncing.joining',
      'syncing.joining',
      'syncing.replicating.copying',
      'syncing.replicating.applying',
      'syncing.replicating.committing',
      'syncing.replicating.committing',
      'syncing.replicating.committing',
      'syncing.finishing.awaiting',
      'syncing.finishing.awaiting',
      'syncing.finishing.handedOver',
      'syncing.finishing.handedOver',
      'committed.leaving',
      'committed.left',
    ])
    expect(snapshot.context).toMatchObject({ canWrite: true, reached: true, commitRequested: false })
  })
  it('of which an earlier version stored the context is continued, both in COMMITTED and during a commit', () => {
    const {
      decided: _decided,
      abortsBefore: _aborts,
      attempt: _attempt,
      commitAborted: _aborted,
      ...earlier
    } = {
      ...stored(begin()),
      ...{
        configuration,
        initialised: true,
        copyCompleted: true,
        initiallyVerified: true,
        commitTimestamp: '7',
        reached: true,
      },
    }
    const committing = { ...earlier, commitRequested: true } as InstanceContext
    expect(stateOf(begin(committing))).toBe('syncing.replicating.committing')
    const opened = begin({ ...committing, canWrite: true })
    expect(stateOf(opened)).toBe('syncing.finishing.awaiting')
    expect(stateOf(next(opened, syncObserved('converting')))).toBe('syncing.finishing.handedOver')
    expect(stateOf(begin({ ...committing, commitRequested: false, canWrite: true }))).toBe('committed.leaving')
  })
})

describe('a pause', () => {
  it('waits for both workers', () => {
    for (const [first, second] of [
      ['copy.drained', 'events.drained'],
      ['events.drained', 'copy.drained'],
      ['events.drained', 'copy.completed'],
    ] as const) {
      let snapshot = begin({ ...begin().context, configuration, initialised: true })
      snapshot = next(snapshot, { type: 'sync.pause' })
      expect(stateOf(snapshot)).toBe('syncing.replicating.draining')
      snapshot = next(snapshot, { type: first })
      expect(stateOf(snapshot)).toBe('syncing.replicating.draining')
      snapshot = next(snapshot, { type: second })
      expect(stateOf(snapshot)).toBe('paused.holding')
      expect(snapshot.context.copyCompleted).toBe(second === 'copy.completed')
    }
  })

  it('does not count workers as drained that were drained in an earlier pause', () => {
    let snapshot = begin({ ...begin().context, configuration, initialised: true })
    for (const type of ['sync.pause', 'copy.drained', 'events.drained', 'sync.resume', 'sync.pause'] as const) {
      snapshot = next(snapshot, { type })
    }
    expect(stateOf(snapshot)).toBe('syncing.replicating.draining')
  })

  it('stays requested when an eviction makes the instance start again', () => {
    for (const type of ['lease.evicted'] as const) {
      let snapshot = begin({ ...begin().context, configuration, initialised: true })
      for (const event of ['sync.pause', 'events.drained'] as const) snapshot = next(snapshot, { type: event })
      snapshot = next(snapshot, { type })
      expect(stateOf(snapshot)).toBe('syncing.replicating.draining')
      // The eviction has replaced both workers.
      expect(snapshot.context).toMatchObject({ copyDrained: false, eventsDrained: false })
      for (const event of ['copy.drained', 'events.drained'] as const) snapshot = next(snapshot, { type: event })
      expect(stateOf(snapshot)).toBe('paused.holding')
    }
  })

  it('that is requested during initialisation waits until initialisation has ended', () => {
    const initialising = next(begin(), commands[0] as AnyEvent)
    const requested = next(initialising, { type: 'sync.pause' })
    expect(stateOf(requested)).toBe('syncing.joining')
    const paused = next(requested, syncObserved('replicating'))
    expect(stateOf(paused)).toBe('paused.resting')
    expect(stateOf(next(paused, { type: 'sync.resume' }))).toBe('syncing.replicating.copying')
  })
})

describe('an instance at rest without its lease', () => {
  it.each([
    ['paused', { pauseRequested: true }],
    ['failed', { failure }],
    ['failed', { failure, commitRequested: true }],
  ])('that is %s tries to take it again after every failed attempt', async (rest, fields) => {
    const clock = new SimulatedClock()
    const context = { ...begin().context, configuration, initialised: true, ...fields }
    const stubs = new StubWorkers(context, undefined, clock)
    const state = () => stateOf(stubs.actor.getSnapshot())
    const atRest = state()
    stubs.actor.send({ type: 'lease.evicted' })
    for (let failures = 0; failures < 3; failures += 1) {
      expect(state()).toBe(`${rest}.holding`)
      await stubs.fail('hold')
      expect(state()).toBe(`${rest}.waiting`)
      clock.increment(9_999)
      expect(state()).toBe(`${rest}.waiting`)
      clock.increment(1)
    }
    await stubs.proceed('hold')
    expect(state()).toBe(atRest)
    expect(stubs.running.has('undo')).toBe(true)
  })

  it('accepts commands and reports between two attempts', () => {
    const waiting = (rest: 'paused' | 'failed') => {
      const fields = rest === 'paused' ? { pauseRequested: true } : { failure, commitRequested: true }
      const holding = next(begin({ ...begin().context, configuration, ...fields }), { type: 'lease.evicted' })
      return next(holding, { type: 'xstate.error.actor.hold', error: new Error('no success for 30 minutes') })
    }
    for (const rest of ['paused', 'failed'] as const) {
      expect(waiting(rest).matches({ [rest]: 'waiting' })).toBe(true)
      expect(stateOf(next(waiting(rest), { type: 'sync.resume' }))).toBe('syncing.joining')
      expect(stateOf(next(waiting(rest), { type: 'worker.failed', failure: takenOver }))).toBe('failed.resting')
      expect(stateOf(next(waiting(rest), { type: 'lease.evicted' }))).toBe(`${rest}.holding`)
    }
    expect(waiting('failed').can({ type: 'sync.abort' })).toBe(true)
  })
})
