import { describe, expect, it } from 'vitest'
import {
  type AnyActorRef,
  createActor,
  createMachine,
  fromCallback,
  fromPromise,
  SimulatedClock,
  type SnapshotFrom,
} from 'xstate'
import { type ClaimedSegment, collectionCopyMachine } from '../../machines/collection-copy.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { pathOf } from '../../machines/sync-view.ts'
import { type Deferred, deferred } from '../../src/domain/deferred.ts'
import type { Failure } from '../../src/domain/errors.ts'
import { describeStep, everyStep, type Step, settlements, type Tried, underWay } from './explore.ts'
import { settle } from './stub-workers.ts'

const restingStates = [
  'opening',
  'beginning',
  'surveying',
  'planning',
  'copying.claiming',
  'copying.busy',
  'copying.emptying',
  'ending',
  'waiting',
  'finishing',
  'completed',
  'draining',
  'drained',
  'stopping',
  'stopped',
  'failed',
]

const error = new Error('it failed')
const failure = { error: 'DuplicateKey', errorDescription: 'it failed' } as const
const segments = ['one', 'two', 'three'].map((id) => ({ id, collection: 'c' }))

/**
 * Returns every event that can happen in a state: actors settle while they run, and segments report while they are
 * copied.
 */
function events(snapshot: SnapshotFrom<typeof collectionCopyMachine>): Tried[] {
  const { context } = snapshot
  const children = underWay(snapshot)
  // This instance claims a segment again only after its copy of the segment has ended.
  const claimable = segments.filter(({ id }) => !children.includes(id))
  const outputs: Record<string, unknown[]> = {
    begin: [undefined],
    survey: [false, true],
    plan: [undefined],
    claim: [[], claimable.slice(0, 1), claimable],
    endCopies: [undefined],
    finish: [undefined],
    close: [null, failure],
  }
  return [
    { type: 'worker.drain' },
    { type: 'limits.changed', atOnce: 1 },
    { type: 'limits.changed', atOnce: 2 },
    ...(pathOf(snapshot) === 'opening' && context.segmentsAtOnce > 0
      ? [{ type: 'replication.opened' }, { type: 'replication.failed', error }]
      : []),
    ...segments
      .filter(({ id }) => children.includes(id))
      .flatMap(({ id }) => [
        { type: 'segment.progressed', collection: 'c', bytes: 1 },
        { type: 'segment.copied', id },
        { type: 'segment.dropped', id },
        { type: 'segment.failed', id, error },
      ]),
    ...(pathOf(snapshot) === 'waiting' ? [{ type: 'xstate.after.poll.collectionCopy.waiting' }] : []),
    ...settlements(snapshot, outputs, error),
  ]
}

const steps = everyStep(collectionCopyMachine, events)
type CopyStep = Step<SnapshotFrom<typeof collectionCopyMachine>>

function everyStepShould(hold: (step: CopyStep) => boolean): void {
  expect(steps.filter((step) => !hold(step)).map(describeStep)).toEqual([])
}

const isUnderWay = ({ id }: ClaimedSegment, { children }: { children: object }) => underWay({ children }).includes(id)

describe('every step of the copy', () => {
  it('leads to every state and nowhere else', () => {
    expect(new Set(steps.map(({ to }) => pathOf(to)))).toEqual(new Set(restingStates))
    expect(steps.length).toBeGreaterThan(500)
  })

  it('starts no segment beyond the limits, and no segment twice', () => {
    everyStepShould(({ from, to }) => {
      const started = segments.filter((segment) => isUnderWay(segment, to) && !isUnderWay(segment, from))
      return started.length === 0 || to.context.underWay.length <= to.context.segmentsAtOnce
    })
    everyStepShould(({ to }) => new Set(to.context.underWay).size === to.context.underWay.length)
  })

  it('has a child for each segment under way, and keeps the child until the segment ends', () => {
    everyStepShould(({ to }) => {
      const children = segments.filter((segment) => isUnderWay(segment, to)).map(({ id }) => id)
      return JSON.stringify(children.sort()) === JSON.stringify([...to.context.underWay].sort())
    })
    everyStepShould(({ from, event, to }) => {
      const left = from.context.underWay.filter((id) => !to.context.underWay.includes(id))
      return left.every(
        (id) => (event.type === 'segment.copied' || event.type === 'segment.dropped') && event['id'] === id,
      )
    })
  })

  it('starts no segment after it was told to drain or stop', () => {
    everyStepShould(({ from, to }) => {
      if (from.matches('copying')) return true
      return segments.every((segment) => !isUnderWay(segment, to) || isUnderWay(segment, from))
    })
  })

  it('enters `ending` only when no segment is under way', () => {
    everyStepShould(({ to }) => !to.matches('ending') || to.context.underWay.length === 0)
  })

  it('starts every claimed segment before the copy enters `ending`', () => {
    everyStepShould(({ from, to }) => {
      if (!from.matches('copying') || !to.matches('ending')) return true
      return from.context.claimed.length === 0
    })
  })

  it('is drained or stopped only after all work is closed, or before any work has begun', () => {
    const closed = (event: Tried) => event.type === 'xstate.done.actor.close'
    everyStepShould(({ from, event, to }) => {
      if (from.value === to.value || (!to.matches('drained') && !to.matches('stopped'))) return true
      return from.matches('opening') || closed(event)
    })
  })

  it('leads from a failure to failed or stopped, or to drained if a drain was requested', () => {
    everyStepShould(({ from, to }) => {
      if (!from.matches('stopping')) return true
      return ['stopping', 'stopped', 'failed', 'draining'].includes(pathOf(to))
    })
  })
})

/**
 * Starts a copy. The test decides when each piece of its work ends. The result includes the copy's reports to the
 * instance.
 */
function run(claims: ClaimedSegment[][]) {
  const reports: WorkerReport[] = []
  const running = new Map<string, (event: object) => void>()
  const closing: Deferred<Failure | null> = deferred()
  const clock = new SimulatedClock()
  let open: (event: object) => void = () => {}
  const recorded: number[] = []
  const machine = collectionCopyMachine.provide({
    actors: {
      replication: fromCallback(({ sendBack }) => {
        open = sendBack as typeof open
      }),
      begin: fromPromise(async () => {}),
      survey: fromPromise(async () => false),
      plan: fromPromise(async () => {}),
      claim: fromPromise(async () => claims.shift() ?? []),
      segment: fromCallback(({ input, sendBack }) => {
        running.set(input.id, sendBack as typeof open)
        return () => running.delete(input.id)
      }),
      endCopies: fromPromise(async () => {}),
      finish: fromPromise(async () => {}),
      close: fromPromise(() => closing.promise),
    },
    actions: {
      recordProgress: ({ event }) => void (event.type === 'segment.progressed' && recorded.push(event.bytes)),
    },
  })
  const instance = createActor(
    createMachine({
      invoke: { id: 'copy', src: machine },
      on: { '*': { actions: ({ event }) => reports.push(event as WorkerReport) } },
    }),
    { clock },
  )
  instance.start()
  const actor = instance.getSnapshot().children['copy'] as AnyActorRef
  const report = async (id: string, event: object): Promise<void> => {
    running.get(id)?.(event)
    await settle()
  }
  const begin = async (atOnce: number): Promise<void> => {
    open({ type: 'limits.changed', atOnce })
    open({ type: 'replication.opened' })
    await settle()
  }
  const copied = (id: string): Promise<void> => report(id, { type: 'segment.copied', id })
  return {
    actor,
    begin,
    copied,
    report,
    clock,
    closing,
    reports,
    running,
    recorded,
    widen: (atOnce: number) => open({ type: 'limits.changed', atOnce }),
  }
}

const claim = (...ids: string[]): ClaimedSegment[] => ids.map((id) => ({ id, collection: 'c' }))

describe('a copy', () => {
  it('copies as many segments at a time as the limits allow, and applies higher limits at once', async () => {
    const copy = run([claim('1', '2', '3', '4', '5', '6')])
    await copy.begin(2)
    expect([...copy.running.keys()]).toEqual(['1', '2'])
    copy.widen(4)
    expect([...copy.running.keys()]).toEqual(['1', '2', '3', '4'])
    copy.widen(1)
    await copy.copied('1')
    await copy.copied('2')
    await copy.copied('3')
    expect([...copy.running.keys()]).toEqual(['4'])
    await copy.copied('4')
    expect([...copy.running.keys()]).toEqual(['5'])
  })

  it('claims again while segments are under way, and surveys again when all of them have ended', async () => {
    const copy = run([claim('1', '2'), claim('3')])
    await copy.begin(2)
    await copy.copied('1')
    expect([...copy.running.keys()]).toEqual(['2', '3'])
    await copy.copied('2')
    await copy.copied('3')
    expect(pathOf(copy.actor.getSnapshot())).toBe('waiting')
    copy.clock.increment(200)
    await settle()
    expect(pathOf(copy.actor.getSnapshot())).toBe('waiting')
  })

  it('starts no segment after a failure, and reports the failure when all work has ended', async () => {
    const copy = run([claim('1', '2', '3')])
    await copy.begin(2)
    await copy.report('1', { type: 'segment.failed', id: '1', error })
    await copy.copied('2')
    expect([...copy.running.keys()]).not.toContain('3')
    expect(copy.reports).toEqual([])
    copy.closing.resolve(failure)
    await settle()
    expect(copy.reports).toEqual([{ type: 'worker.failed', failure }])
  })

  it('records the progress of its segments, also while it drains, and is drained when all work is closed', async () => {
    const copy = run([claim('1')])
    await copy.begin(1)
    await copy.report('1', { type: 'segment.progressed', collection: 'c', bytes: 7 })
    copy.actor.send({ type: 'worker.drain' })
    await copy.report('1', { type: 'segment.progressed', collection: 'c', bytes: 5 })
    expect(copy.recorded).toEqual([7, 5])
    expect(copy.reports).toEqual([])
    copy.closing.resolve(null)
    await settle()
    expect(copy.reports).toEqual([{ type: 'copy.drained' }])
  })

  it('is drained at once before it begins, and after it has completed', async () => {
    const copy = run([])
    copy.actor.send({ type: 'worker.drain' })
    expect(copy.reports).toEqual([{ type: 'copy.drained' }])
    await copy.begin(1)
    expect(pathOf(copy.actor.getSnapshot())).toBe('drained')
  })
})
