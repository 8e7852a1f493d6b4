import { describe, expect, it } from 'vitest'
import { getShortestPaths } from 'xstate/graph'
import { instanceMachine } from '../../machines/instance.ts'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { publicState } from '../../src/sync/report-progress.ts'
import {
  type AnyEvent,
  aborted,
  begin,
  commands,
  commit,
  configuration,
  failure,
  type InstanceSnapshot,
  next,
  reports,
  running,
  settlements,
  stateOf,
  stored,
  takenOver,
} from './instance-model.ts'

/** Every state the machine can rest in; `booting` and `choosing` are passed through. */
const restingStates = [
  'idle',
  'syncing.initialising',
  'syncing.replicating.copying',
  'syncing.replicating.hashing',
  'syncing.replicating.applying',
  'syncing.replicating.draining',
  'syncing.replicating.committing',
  'syncing.finishing.preparing',
  'syncing.finishing.verifying',
  'syncing.finishing.deciding',
  'syncing.finishing.opening',
  'syncing.finishing.converting',
  'paused',
  'committed',
  'reversing.moving',
  'reversing.adapting',
  'failed.resting',
  'failed.watching',
]

/** What runs in each. */
const runs: Record<string, string[]> = {
  'syncing.initialising': ['initialisation', 'verification'],
  'syncing.replicating.copying': ['collectionCopy', 'eventApplication', 'verification'],
  'syncing.replicating.hashing': ['collectionCopy', 'eventApplication', 'verification'],
  'syncing.replicating.applying': ['collectionCopy', 'eventApplication', 'verification'],
  'syncing.replicating.draining': ['collectionCopy', 'eventApplication', 'verification'],
  'syncing.replicating.committing': [
    'collectionCopy',
    'commitPoint',
    'commitWatch',
    'eventApplication',
    'verification',
  ],
  'syncing.finishing.preparing': ['commitWatch', 'preparation', 'verification'],
  'syncing.finishing.verifying': ['commitWatch', 'verdict', 'verification'],
  'syncing.finishing.deciding': ['commitWatch', 'decision', 'verification'],
  'syncing.finishing.opening': ['opening', 'verification'],
  'syncing.finishing.converting': ['indexConversion', 'verification'],
  'reversing.moving': ['metadataMove'],
  'reversing.adapting': ['adaptation'],
  'failed.watching': ['commitWatch'],
}

interface Step {
  from: InstanceSnapshot
  /** `null`: the process dies and another goes on from what is stored. */
  event: AnyEvent | null
  to: InstanceSnapshot
}

/** A commit that died here begins anew. */
const beforeWrites = new Set(['preparing', 'verifying', 'deciding'].map((state) => `syncing.finishing.${state}`))

const keyOf = (snapshot: InstanceSnapshot) => JSON.stringify([snapshot.value, snapshot.context])

/** Workers report only while they run, and promises settle only then. */
function mayHappen(snapshot: InstanceSnapshot, event: AnyEvent): boolean {
  if (event.type.startsWith('copy.') || event.type === 'commit.passed')
    return running(snapshot).includes('collectionCopy')
  if (event.type === 'events.drained') return running(snapshot).includes('eventApplication')
  if (event.type === 'events.reached') return stateOf(snapshot).endsWith('committing')
  const [, id] = /^xstate\.\w+\.actor\.(\w+)$/.exec(event.type) ?? []
  return id === undefined || running(snapshot).includes(id)
}

/** Every step there is: the machine has few enough states to try all of them, crashes included. */
function everyStep(): Step[] {
  const steps: Step[] = []
  const seen = new Set<string>()
  const open = [begin()]
  for (let from = open.pop(); from; from = open.pop()) {
    if (seen.has(keyOf(from))) continue
    seen.add(keyOf(from))
    const events = [...commands, ...reports, ...settlements].filter((event) => mayHappen(from, event))
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
  it('lead to every state', () => {
    const paths = getShortestPaths(instanceMachine, {
      input: null,
      events: [...commands, ...reports, ...settlements] as never[],
      serializeState: (snapshot) => keyOf(snapshot as InstanceSnapshot),
    })
    const reached = new Set(paths.map(({ state }) => stateOf(state as InstanceSnapshot)))
    expect([...reached].sort()).toEqual([...restingStates].sort())
  })

  it('lead nowhere else, crashes included', () => {
    expect(new Set(steps.map(({ to }) => stateOf(to)))).toEqual(new Set(restingStates))
    expect(steps.length).toBeGreaterThan(500)
  })

  it('of an uneventful migration', () => {
    const events: AnyEvent[] = [
      commands[0] as AnyEvent,
      { type: 'xstate.done.actor.initialisation', output: undefined },
      { type: 'copy.completed' },
      commit,
      { type: 'xstate.done.actor.commitPoint', output: '7' },
      { type: 'events.reached' },
      { type: 'xstate.done.actor.preparation', output: undefined },
      { type: 'xstate.done.actor.verdict', output: undefined },
      { type: 'xstate.done.actor.decision', output: undefined },
      { type: 'xstate.done.actor.opening', output: undefined },
      { type: 'xstate.done.actor.indexConversion', output: undefined },
    ]
    const seen: string[] = []
    let snapshot = begin()
    for (const event of events) {
      snapshot = next(snapshot, event)
      seen.push(stateOf(snapshot))
    }
    expect(seen).toEqual([
      'syncing.initialising',
      'syncing.replicating.copying',
      'syncing.replicating.applying',
      'syncing.replicating.committing',
      'syncing.replicating.committing',
      'syncing.finishing.preparing',
      'syncing.finishing.verifying',
      'syncing.finishing.deciding',
      'syncing.finishing.opening',
      'syncing.finishing.converting',
      'committed',
    ])
    expect(snapshot.context).toMatchObject({ canWrite: true, reached: true, commitRequested: false })
  })
})

describe('at every step', () => {
  it('committed is the end of a direction', () => {
    everyStepShould(({ from, event, to }) => {
      if (!from.matches('committed')) return true
      return stateOf(to) === (event?.type === 'sync.reverse' ? 'reversing.moving' : 'committed')
    })
  })

  it('canWrite is taken back only where the direction turns', () => {
    everyStepShould(
      ({ from, event, to }) =>
        !from.context.canWrite || to.context.canWrite || event?.type === 'xstate.done.actor.metadataMove',
    )
  })

  it('canWrite comes only from opening the destination, and that only after a decision, made here or elsewhere', () => {
    everyStepShould(
      ({ from, event, to }) =>
        from.context.canWrite || !to.context.canWrite || event?.type === 'xstate.done.actor.opening',
    )
    everyStepShould(({ to }) => !to.context.canWrite || to.context.decided)
    const decisions: unknown[] = ['xstate.done.actor.decision', 'commit.passed']
    everyStepShould(
      ({ from, event, to }) => from.context.decided || !to.context.decided || decisions.includes(event?.type),
    )
  })

  it('a decision is taken back only where the direction turns, and nothing is applied after it', () => {
    everyStepShould(
      ({ from, event, to }) =>
        !from.context.decided || to.context.decided || event?.type === 'xstate.done.actor.metadataMove',
    )
    everyStepShould(({ to }) => !to.context.decided || !running(to).includes('eventApplication'))
  })

  it('a commit that the others have decided is ended without another check of the source', () => {
    const passed = steps.filter(({ from, event }) => event?.type === 'commit.passed' && !from.context.decided)
    expect(passed.length).toBeGreaterThan(0)
    for (const { to } of passed) expect(stateOf(to)).toBe('syncing.finishing.opening')
  })

  it('an abort is accepted exactly where a commit is under way that is not decided, and leads back to RUNNING', () => {
    everyStepShould(({ to }) => {
      const { commitRequested, decided, canWrite } = to.context
      const isOurs = to.context.failure?.error !== 'LeaseLost'
      const isUnderWay = to.hasTag('COMMITTING') || (to.matches('failed') && commitRequested && isOurs)
      return to.can(aborted) === (isUnderWay && !decided && !canWrite)
    })
    const aborts = steps.filter(({ from, event }) => event?.type === 'commit.aborted' && from.can(aborted))
    expect(new Set(aborts.map(({ from }) => stateOf(from))).size).toBe(5)
    for (const { to } of aborts) {
      expect(stateOf(to)).toMatch(/^syncing\.replicating\.(applying|hashing)$/)
      expect(to.context).toMatchObject({
        commitRequested: false,
        commitAborted: true,
        commitPoint: null,
        reached: false,
      })
      // One that comes late is of an earlier commit.
      expect(to.can({ ...aborted, abortsBefore: 1 })).toBe(false)
      // A crash right after it changes nothing, and what the commit had changed is undone before anything is applied.
      expect(stateOf(begin(stored(to)))).toBe(stateOf(to))
    }
  })

  it('what an earlier version stored is gone on with: committed, and on the way there', () => {
    const {
      decided: _decided,
      abortsBefore: _aborts,
      commitUntil: _until,
      commitAborted: _aborted,
      ...earlier
    } = {
      ...begin().context,
      ...{ configuration, initialised: true, copyCompleted: true, hashed: true, commitPoint: '7', reached: true },
    }
    const committing = { ...earlier, commitRequested: true } as InstanceContext
    expect(stateOf(begin(committing))).toBe('syncing.replicating.committing')
    expect(stateOf(begin({ ...committing, canWrite: true }))).toBe('syncing.finishing.converting')
    expect(stateOf(begin({ ...committing, commitRequested: false, canWrite: true }))).toBe('committed')
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
    const reversed = steps.filter(({ event }) => event?.type === 'xstate.done.actor.adaptation')
    expect(reversed.length).toBeGreaterThan(0)
    for (const { to } of reversed) {
      const ready = to.context.configuration?.verification.enabled === false
      expect(stateOf(to)).toBe(`syncing.replicating.${ready ? 'applying' : 'hashing'}`)
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

  it('traits are restored only when every event up to the commit point is applied', () => {
    everyStepShould(({ to }) => !stateOf(to).startsWith('syncing.finishing') || to.context.reached)
    const ends: unknown[] = ['events.reached', 'commit.passed']
    everyStepShould(({ from, event, to }) => from.context.reached || !to.context.reached || ends.includes(event?.type))
  })

  it('a commit that was interrupted before the decision takes a new point', () => {
    const interrupted = steps.filter(
      ({ from, event }) =>
        from.context.commitRequested &&
        !from.context.decided &&
        ((event === null && !from.matches('failed')) || (from.matches('failed') && event?.type === 'sync.resume')),
    )
    expect(interrupted.length).toBeGreaterThan(4)
    for (const step of interrupted) {
      expect(stateOf(step.to), describeStep(step)).toBe('syncing.replicating.committing')
      expect(running(step.to)).toContain('commitPoint')
      expect(step.to.context.reached).toBe(false)
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
      expect(stateOf(snapshot)).toBe('paused')
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
      return ['syncing.initialising', 'syncing.replicating.draining'].includes(stateOf(to))
    })
    for (const type of ['lease.buried', 'commit.renewed'] as const) {
      let snapshot = begin({ ...begin().context, configuration, initialised: true })
      for (const event of ['sync.pause', 'events.drained'] as const) snapshot = next(snapshot, { type: event })
      snapshot = next(snapshot, { type })
      expect(stateOf(snapshot)).toBe('syncing.replicating.draining')
      // Both workers are others now.
      expect(snapshot.context).toMatchObject({ copyDrained: false, eventsDrained: false })
      for (const event of ['copy.drained', 'events.drained'] as const) snapshot = next(snapshot, { type: event })
      expect(stateOf(snapshot)).toBe('paused')
    }
  })

  it('asked for while initialising waits for its end', () => {
    const initialising = next(begin(), commands[0] as AnyEvent)
    const asked = next(initialising, { type: 'sync.pause' })
    expect(stateOf(asked)).toBe('syncing.initialising')
    const paused = next(asked, { type: 'xstate.done.actor.initialisation', output: undefined })
    expect(stateOf(paused)).toBe('paused')
    expect(stateOf(next(paused, { type: 'sync.resume' }))).toBe('syncing.replicating.copying')
  })
})

describe('after a crash', () => {
  it('the instance goes on in the state it was in; a pause that was asked for has taken place', () => {
    everyStepShould(({ from, event, to }) => {
      if (event !== null) return true
      if (from.context.pauseRequested && stateOf(from).startsWith('syncing')) return stateOf(to) === 'paused'
      if (beforeWrites.has(stateOf(from))) return stateOf(to) === 'syncing.replicating.committing'
      return stateOf(to) === stateOf(from)
    })
  })

  it('the context is what it was, but for how far a commit had come', () => {
    everyStepShould(({ from, event, to }) => {
      if (event !== null) return true
      const reached = from.context.reached && from.context.decided
      const commitPoint = from.context.decided ? from.context.commitPoint : null
      return JSON.stringify({ ...from.context, commitPoint, reached }) === JSON.stringify(to.context)
    })
  })
})

describe('a failure reported from outside', () => {
  it.each(Object.keys(runs).filter((state) => !state.startsWith('failed')))(
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
