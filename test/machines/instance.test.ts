import { describe, expect, it } from 'vitest'
import { SimulatedClock } from 'xstate'
import type { InstanceContext } from '../../machines/instance-context.ts'
import type { SyncView } from '../../machines/sync-view.ts'
import { publicState } from '../../src/session/report-progress.ts'
import {
  type AnyEvent,
  begin,
  commands,
  commit,
  configuration,
  elapsed,
  failure,
  type InstanceSnapshot,
  next,
  reports,
  running,
  seen,
  settlements,
  stateOf,
  stored,
  takenOver,
} from './instance-model.ts'
import { StubWorkers } from './stub-workers.ts'

/** Every state the machine can rest in; `booting` and `choosing` are passed through. */
const restingStates = [
  'idle',
  'syncing.joining',
  'syncing.replicating.copying',
  'syncing.replicating.hashing',
  'syncing.replicating.applying',
  'syncing.replicating.draining',
  'syncing.replicating.committing',
  'syncing.finishing.awaiting',
  'syncing.finishing.handedOver',
  'paused.resting',
  'paused.holding',
  'paused.waiting',
  'committed.leaving',
  'committed.holding',
  'committed.left',
  'reversing.moving',
  'reversing.adapting',
  'failed.resting',
  'failed.watching',
  'failed.holding',
  'failed.waiting',
]

const replicating = ['collectionCopy', 'eventApplication', 'syncFollower', 'verification']
/** What runs in each. */
const runs: Record<string, string[]> = {
  'syncing.joining': ['syncFollower', 'verification'],
  'syncing.replicating.copying': replicating,
  'syncing.replicating.hashing': replicating,
  'syncing.replicating.applying': replicating,
  'syncing.replicating.draining': replicating,
  'syncing.replicating.committing': ['commitDeadline', ...replicating].sort(),
  'syncing.finishing.awaiting': ['commitDeadline', 'syncFollower', 'verification'],
  'syncing.finishing.handedOver': ['syncFollower', 'verification'],
  'reversing.moving': ['metadataMove'],
  'reversing.adapting': ['syncFollower'],
  'paused.resting': ['undo'],
  'failed.resting': ['undo'],
  'failed.watching': ['commitDeadline', 'syncFollower', 'undo'],
  'paused.holding': ['hold'],
  'committed.leaving': ['leave'],
  'committed.holding': ['hold'],
  'failed.holding': ['hold'],
}

interface Step {
  from: InstanceSnapshot
  /** `null`: the process dies and another goes on from what is stored. */
  event: AnyEvent | null
  to: InstanceSnapshot
}

const keyOf = (snapshot: InstanceSnapshot) => JSON.stringify([snapshot.value, snapshot.context])

/** Workers report only while they run, and promises settle only then. */
function mayHappen(snapshot: InstanceSnapshot, event: AnyEvent): boolean {
  if (event.type.startsWith('copy.')) return running(snapshot).includes('collectionCopy')
  if (event.type === 'sync.seen') return running(snapshot).includes('syncFollower')
  if (event.type === 'events.drained') return running(snapshot).includes('eventApplication')
  if (event.type === 'events.reached') return stateOf(snapshot).endsWith('committing')
  if (event.type.startsWith('xstate.after.')) return event.type.endsWith(`.${stateOf(snapshot)}`)
  const [, id] = /^xstate\.\w+\.actor\.(\w+)$/.exec(event.type) ?? []
  return id === undefined || running(snapshot).includes(id)
}

/** Without verification `hashing` is left out, and nothing else is different. */
const isUnverified = (event: AnyEvent) => event.type === 'sync.start' && !event.configuration.verification.enabled
const tried = [...commands, ...reports, ...settlements, ...elapsed].filter((event) => !isUnverified(event))

/** Every step there is: the machine has few enough states to try all of them, crashes included. */
function everyStep(): Step[] {
  const steps: Step[] = []
  const seen = new Set<string>()
  const open = [begin()]
  for (let from = open.pop(); from; from = open.pop()) {
    if (seen.has(keyOf(from))) continue
    seen.add(keyOf(from))
    const events = tried.filter((event) => mayHappen(from, event))
    for (const event of [...events, null]) {
      const to = event ? next(from, event) : begin(stored(from))
      steps.push({ from, event, to })
      open.push(to)
    }
  }
  return steps
}

const steps = everyStep()
const describeStep = ({ from, event, to }: Step) =>
  `${stateOf(from)} ─ ${event?.type ?? 'crash'} ─▶ ${stateOf(to)}, context ${JSON.stringify(from.context)}`

function everyStepShould(hold: (step: Step) => boolean): void {
  expect(steps.filter((step) => !hold(step)).map(describeStep)).toEqual([])
}

describe('paths', () => {
  it('lead to every state and nowhere else, crashes included', () => {
    expect(new Set(steps.map(({ to }) => stateOf(to)))).toEqual(new Set(restingStates))
    expect(steps.length).toBeGreaterThan(500)
  })

  it('of an uneventful migration', () => {
    const events: AnyEvent[] = [
      commands[0] as AnyEvent,
      seen('initialising'),
      seen('replicating'),
      { type: 'copy.completed' },
      commit,
      seen('gathering'),
      seen('applying'),
      { type: 'events.reached' },
      seen('preparing'),
      seen('opening'),
      seen('converting'),
      seen('committed'),
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
})

describe('at every step', () => {
  it('committed is the end of a direction', () => {
    everyStepShould(({ from, event, to }) => {
      if (!from.matches('committed')) return true
      return event?.type === 'sync.reverse' ? stateOf(to) === 'reversing.moving' : to.matches('committed')
    })
  })

  it('what is decided, and that users can write, comes from the stored sync and is taken back only where the direction turns', () => {
    for (const what of ['decided', 'canWrite'] as const) {
      everyStepShould(
        ({ from, event, to }) =>
          !from.context[what] || to.context[what] || event?.type === 'xstate.done.actor.metadataMove',
      )
      everyStepShould(
        ({ from, event, to }) =>
          from.context[what] || !to.context[what] || (event?.type === 'sync.seen' && event.sync[what]),
      )
    }
    everyStepShould(({ to }) => !to.context.canWrite || to.context.decided)
  })

  it('nothing is applied once it is decided', () => {
    everyStepShould(({ to }) => !to.context.decided || !running(to).includes('eventApplication'))
  })

  it('a commit that the others have decided is ended, wherever the instance had come to', () => {
    const ahead = steps.filter(
      ({ event, to }) => event?.type === 'sync.seen' && event.sync.decided && to.matches('syncing'),
    )
    expect(ahead.length).toBeGreaterThan(10)
    for (const { to } of ahead) expect(stateOf(to)).toBe('syncing.finishing.handedOver')
    const over = steps.filter(
      ({ from, event }) =>
        event?.type === 'sync.seen' &&
        event.sync.committed &&
        from.matches('syncing') &&
        // A pause that was asked for while it joined comes first.
        !from.matches({ syncing: 'joining' }),
    )
    for (const { to } of over) expect(stateOf(to)).toBe('committed.leaving')
  })

  it('a commit that the others are at is joined as soon as this instance could commit', () => {
    const joined = steps.filter(({ to }) => to.hasTag('canCommit') && to.context.sync?.underWay)
    expect(joined).toEqual([])
    const joining = steps.filter(
      ({ from, event }) => from.hasTag('canCommit') && event?.type === 'sync.seen' && event.sync.underWay,
    )
    expect(joining.length).toBeGreaterThan(0)
    for (const { to } of joining) expect(stateOf(to)).toBe('syncing.replicating.committing')
  })

  it('an abort is accepted exactly where a commit is under way that is not decided, and leads back to RUNNING', () => {
    everyStepShould(({ to }) => {
      const { commitRequested, decided, canWrite } = to.context
      const isOurs = to.context.failure?.error !== 'LeaseLost'
      const isUnderWay = to.hasTag('COMMITTING') || (to.matches('failed') && commitRequested && isOurs)
      return to.can({ type: 'sync.abort' }) === (isUnderWay && !decided && !canWrite)
    })
    const aborts = steps.filter(
      ({ from, event }) =>
        event?.type === 'sync.seen' &&
        event.sync.aborts > from.context.abortsBefore &&
        from.can({ type: 'sync.abort' }),
    )
    expect(new Set(aborts.map(({ from }) => stateOf(from))).size).toBe(3)
    for (const { to } of aborts) {
      expect(stateOf(to)).toMatch(/^syncing\.replicating\.(applying|hashing)$/)
      expect(to.context).toMatchObject({
        commitRequested: false,
        commitAborted: true,
        commitPoint: null,
        reached: false,
      })
      // A crash right after it changes nothing.
      expect(stateOf(begin(stored(to)))).toBe(stateOf(to))
    }
  })

  it('what an earlier version stored is gone on with: committed, and on the way there', () => {
    const {
      decided: _decided,
      abortsBefore: _aborts,
      attempt: _attempt,
      commitAborted: _aborted,
      ...earlier
    } = {
      ...stored(begin()),
      ...{ configuration, initialised: true, copyCompleted: true, hashed: true, commitPoint: '7', reached: true },
    }
    const committing = { ...earlier, commitRequested: true } as InstanceContext
    expect(stateOf(begin(committing))).toBe('syncing.replicating.committing')
    const opened = begin({ ...committing, canWrite: true })
    expect(stateOf(opened)).toBe('syncing.finishing.awaiting')
    expect(stateOf(next(opened, seen('converting')))).toBe('syncing.finishing.handedOver')
    expect(stateOf(begin({ ...committing, commitRequested: false, canWrite: true }))).toBe('committed.leaving')
  })

  it('the direction turns exactly where the metadata has moved', () => {
    everyStepShould(({ from, event, to }) => {
      const [before, after] = [from.context.configuration, to.context.configuration]
      if (!before || !after) return true
      const turned = before.source === after.destination && before.destination === after.source
      return turned === (event?.type === 'xstate.done.actor.metadataMove') && (turned || before.source === after.source)
    })
  })

  it('a reversal is under way exactly in reversing, and in failed where it failed', () => {
    everyStepShould(({ to }) => (to.context.reversing !== null) === to.matches('reversing') || to.matches('failed'))
    everyStepShould(({ to }) => to.context.reversing !== 'moving' || to.context.canWrite)
    everyStepShould(({ to }) => to.context.reversing !== 'adapting' || !to.context.canWrite)
  })

  it('that everything was compared once is remembered whenever it is told, and forgotten when it must be done anew', () => {
    const inSync = steps.filter(({ from }) => from?.matches('syncing'))
    const hashed = inSync.filter(({ event }) => event?.type === 'verification.hashed')
    expect(new Set(hashed.map(({ from }) => stateOf(from as InstanceSnapshot))).size).toBeGreaterThan(5)
    for (const { to } of hashed) expect(to.context.hashed).toBe(true)
    for (const { event, to } of inSync) {
      if (event?.type === 'verification.restarted') expect(to.context.hashed).toBe(false)
    }
  })

  it('a reversed sync has everything copied, and begins by applying', () => {
    const reversed = steps.filter(
      ({ from, to }) => from.matches('reversing') && to.matches('syncing') && !to.context.decided,
    )
    expect(reversed.length).toBeGreaterThan(0)
    for (const { to } of reversed) {
      const ready = to.context.configuration?.verification.enabled === false
      expect(stateOf(to)).toMatch(ready ? /applying|committing/ : /hashing/)
    }
  })

  it('exactly one public state is shown', () => {
    everyStepShould(({ to }) => [...to.tags].filter((tag) => tag !== 'canCommit').length === 1)
    everyStepShould(({ to }) => to.hasTag(publicState(to)))
  })

  it('runs exactly what its state calls for, so nothing while paused', () => {
    everyStepShould(({ to }) => JSON.stringify(running(to).sort()) === JSON.stringify(runs[stateOf(to)] ?? []))
  })

  it('a failure is remembered in failed and nowhere else', () => {
    everyStepShould(({ to }) => (to.context.failure !== null) === to.matches('failed'))
  })

  it('failed can be resumed and then works again', () => {
    const failed = steps.filter(({ to }) => to.matches('failed'))
    expect(failed.length).toBeGreaterThan(20)
    // Many steps lead to the same.
    for (const to of new Map(failed.map((step) => [keyOf(step.to), step.to])).values()) {
      expect(to.can({ type: 'sync.resume' })).toBe(true)
      const resumed = next(to, { type: 'sync.resume' })
      expect(running(resumed), keyOf(to)).not.toEqual([])
      expect(resumed.context).toMatchObject({ failure: null, pauseRequested: false })
    }
  })

  it('a commit is accepted exactly where canCommit is shown', () => {
    everyStepShould(({ to }) => to.hasTag('canCommit') === to.can(commit))
    everyStepShould(({ to }) => !to.hasTag('canCommit') || to.context.copyCompleted)
  })

  it('what was completed stays completed', () => {
    for (const what of ['initialised', 'copyCompleted'] as const) {
      everyStepShould(({ from, to }) => !from.context[what] || to.context[what])
    }
    everyStepShould(
      ({ from, to }) => !(from.context.reached && from.context.canWrite) || to.context.reached || !to.context.canWrite,
    )
  })

  it('the rest of a commit waits until every event up to the commit point is applied here', () => {
    everyStepShould(({ to }) => !stateOf(to).startsWith('syncing.finishing') || to.context.reached)
    everyStepShould(
      ({ from, event, to }) =>
        from.context.reached ||
        !to.context.reached ||
        event?.type === 'events.reached' ||
        (event?.type === 'sync.seen' && event.sync.decided),
    )
  })

  it('a commit that was interrupted before the decision is begun anew, and waits for its point', () => {
    const interrupted = steps.filter(
      ({ from, event }) =>
        from.context.commitRequested &&
        !from.context.decided &&
        ((event === null && !from.matches('failed')) || (from.matches('failed') && event?.type === 'sync.resume')),
    )
    expect(interrupted.length).toBeGreaterThan(4)
    for (const step of interrupted) {
      expect(stateOf(step.to), describeStep(step)).toBe('syncing.replicating.committing')
      expect(step.to.context).toMatchObject({ reached: false, attempt: 0, commitPoint: null })
    }
  })

  it('an attempt that the sync has left is left here too, and the next one joined', () => {
    const left = steps.filter(
      ({ from, event }) =>
        event?.type === 'sync.seen' &&
        !event.sync.decided &&
        !from.context.decided &&
        event.sync.aborts === from.context.abortsBefore &&
        from.context.attempt > 0 &&
        !from.matches('failed') &&
        event.sync.attempt !== from.context.attempt,
    )
    expect(left.length).toBeGreaterThan(4)
    for (const { event, to } of left) {
      const { attempt, commitPoint } = (event as { sync: SyncView }).sync
      expect(stateOf(to)).toBe('syncing.replicating.committing')
      // By its next look.
      expect(next(to, event as AnyEvent).context.attempt).toBe(commitPoint ? attempt : 0)
    }
  })
})

describe('a pause', () => {
  it('waits for both workers', () => {
    everyStepShould(({ from, event, to }) => {
      const paused = event !== null && stateOf(from).endsWith('draining') && to.matches('paused')
      return !paused || (to.context.copyDrained && to.context.eventsDrained)
    })
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
      expect(stateOf(snapshot)).toBe('paused.resting')
      expect(snapshot.context.copyCompleted).toBe(second === 'copy.completed')
    }
  })

  it('does not take drained for drained of an earlier pause', () => {
    let snapshot = begin({ ...begin().context, configuration, initialised: true })
    for (const type of ['sync.pause', 'copy.drained', 'events.drained', 'sync.resume', 'sync.pause'] as const) {
      snapshot = next(snapshot, { type })
    }
    expect(stateOf(snapshot)).toBe('syncing.replicating.draining')
  })

  it('is not forgotten by what makes an instance begin anew', () => {
    everyStepShould(({ to }) => {
      if (!to.context.pauseRequested || !to.matches('syncing')) return true
      return ['syncing.joining', 'syncing.replicating.draining'].includes(stateOf(to))
    })
    for (const type of ['lease.buried'] as const) {
      let snapshot = begin({ ...begin().context, configuration, initialised: true })
      for (const event of ['sync.pause', 'events.drained'] as const) snapshot = next(snapshot, { type: event })
      snapshot = next(snapshot, { type })
      expect(stateOf(snapshot)).toBe('syncing.replicating.draining')
      // Both workers are others now.
      expect(snapshot.context).toMatchObject({ copyDrained: false, eventsDrained: false })
      for (const event of ['copy.drained', 'events.drained'] as const) snapshot = next(snapshot, { type: event })
      expect(stateOf(snapshot)).toBe('paused.resting')
    }
  })

  it('asked for while initialising waits for its end', () => {
    const initialising = next(begin(), commands[0] as AnyEvent)
    const asked = next(initialising, { type: 'sync.pause' })
    expect(stateOf(asked)).toBe('syncing.joining')
    const paused = next(asked, seen('replicating'))
    expect(stateOf(paused)).toBe('paused.resting')
    expect(stateOf(next(paused, { type: 'sync.resume' }))).toBe('syncing.replicating.copying')
  })
})

describe('an instance at rest without its lease', () => {
  it.each([
    ['paused', { pauseRequested: true }],
    ['failed', { failure }],
    ['failed', { failure, commitRequested: true }],
  ])('that is %s tries for it again whenever that has failed', async (rest, come) => {
    const clock = new SimulatedClock()
    const context = { ...begin().context, configuration, initialised: true, ...come }
    const stubs = new StubWorkers(context, undefined, clock)
    const state = () => stateOf(stubs.actor.getSnapshot())
    const atRest = state()
    stubs.actor.send({ type: 'lease.buried' })
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

  it('goes by what it is told meanwhile', () => {
    const waiting = (rest: 'paused' | 'failed') => {
      const come = rest === 'paused' ? { pauseRequested: true } : { failure, commitRequested: true }
      const holding = next(begin({ ...begin().context, configuration, ...come }), { type: 'lease.buried' })
      return next(holding, { type: 'xstate.error.actor.hold', error: new Error('no success for 30 minutes') })
    }
    for (const rest of ['paused', 'failed'] as const) {
      expect(waiting(rest).matches({ [rest]: 'waiting' })).toBe(true)
      expect(stateOf(next(waiting(rest), { type: 'sync.resume' }))).toBe('syncing.joining')
      expect(stateOf(next(waiting(rest), { type: 'worker.failed', failure: takenOver }))).toBe('failed.resting')
      expect(stateOf(next(waiting(rest), { type: 'lease.buried' }))).toBe(`${rest}.holding`)
    }
    expect(waiting('failed').can({ type: 'sync.abort' })).toBe(true)
  })
})

describe('after a crash', () => {
  it('the instance goes on in the state it was in; a pause that was asked for has taken place', () => {
    everyStepShould(({ from, event, to }) => {
      if (event !== null) return true
      if (from.context.pauseRequested && stateOf(from).startsWith('syncing')) return to.matches('paused')
      if (stateOf(from) === 'syncing.finishing.awaiting') return stateOf(to) === 'syncing.replicating.committing'
      // What was under way at rest is begun anew.
      if (['paused', 'failed', 'committed'].some((rest) => from.matches(rest as 'paused')))
        return stateOf(to).split('.')[0] === stateOf(from).split('.')[0]
      return stateOf(to) === stateOf(from)
    })
  })

  it('the context is what it was, but for how far a commit had come', () => {
    everyStepShould(({ from, event, to }) => {
      if (event !== null) return true
      const reached = from.context.reached && from.context.decided
      const { commitPoint, attempt } = from.context.decided ? from.context : { commitPoint: null, attempt: 0 }
      return (
        JSON.stringify({ ...from.context, attempt, commitPoint, reached, sync: null }) === JSON.stringify(to.context)
      )
    })
  })
})

describe('a failure reported from outside', () => {
  it.each(Object.keys(runs).filter((state) => !/^(failed|paused|committed)/.test(state)))(
    'ends in failed from %s, for there work is under way',
    (state) => {
      const from = steps.find(({ to }) => stateOf(to) === state)?.to as InstanceSnapshot
      for (const failed of [failure, takenOver]) {
        const to = next(from, { type: 'worker.failed', failure: failed })
        expect(to.matches('failed')).toBe(true)
        expect(to.context.failure).toEqual(failed)
      }
    },
  )

  it.each(['paused', 'failed'])(
    'is heeded in %s where another process has the lease: no resume could go on',
    (state) => {
      const from = steps.find(
        ({ to }) => to.matches(state as 'failed') && to.context.failure?.error !== 'LeaseLost',
      )?.to
      const before = from as InstanceSnapshot
      expect(next(before, { type: 'worker.failed', failure })).toMatchObject({
        value: before.value,
        context: before.context,
      })
      const to = next(before, { type: 'worker.failed', failure: takenOver })
      expect(to.matches('failed')).toBe(true)
      expect(to.context.failure).toEqual(takenOver)
    },
  )

  it('is shown with its name', () => {
    const from = steps.find(({ to }) => stateOf(to).endsWith('copying'))?.to as InstanceSnapshot
    expect(next(from, { type: 'worker.failed', failure }).context.failure).toEqual(failure)
  })
})
