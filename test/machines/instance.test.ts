import { describe, expect, it } from 'vitest'
import type { SyncView } from '../../machines/sync-view.ts'
import { publicState, reportedState } from '../../src/session/report-progress.ts'
import {
  type AnyEvent,
  begin,
  commit,
  failure,
  type InstanceSnapshot,
  next,
  running,
  stateOf,
  stored,
  takenOver,
} from './instance-model.ts'
import { describeStep, everyStateShould, everyStepShould, isConvergence, states, steps } from './instance-steps.ts'

/** Every state in which the machine can rest. It only passes through `booting` and `choosing`. */
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
  'reversing.preparingDestination',
  'failed.resting',
  'failed.watching',
  'failed.holding',
  'failed.waiting',
]

const replicating = ['collectionCopy', 'eventApplication', 'syncFollower', 'verification']
/** The actors that run in each state. */
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
  'reversing.preparingDestination': ['syncFollower'],
  'paused.resting': ['undo'],
  'failed.resting': ['undo'],
  'failed.watching': ['commitDeadline', 'syncFollower', 'undo'],
  'paused.holding': ['hold'],
  'committed.leaving': ['leave'],
  'committed.holding': ['hold'],
  'failed.holding': ['hold'],
}

describe('paths', () => {
  it('lead to every state and nowhere else, crashes included', () => {
    expect(new Set(states.map(stateOf))).toEqual(new Set(restingStates))
    expect(steps.length).toBeGreaterThan(500)
  })
})

describe('at every step', () => {
  it('a committed instance stays committed until its direction is reversed', () => {
    everyStepShould(({ from, event, to }) => {
      if (!from.matches('committed')) return true
      return event?.type === 'sync.reverse' ? stateOf(to) === 'reversing.moving' : to.matches('committed')
    })
  })

  it('only a view of the sync makes decided and canWrite true, and only a swap of the direction makes them false', () => {
    for (const field of ['decided', 'canWrite'] as const) {
      everyStepShould(
        ({ from, event, to }) =>
          !from.context[field] || to.context[field] || event?.type === 'xstate.done.actor.metadataMove',
      )
      everyStepShould(
        ({ from, event, to }) =>
          from.context[field] || !to.context[field] || (event?.type === 'sync.observed' && event.sync[field]),
      )
    }
    everyStateShould((to) => !to.context.canWrite || to.context.decided)
  })

  it('no events are applied once the commit is decided', () => {
    everyStateShould((to) => !to.context.decided || !running(to).includes('eventApplication'))
  })

  it('an instance completes a commit that the others have decided, whatever its own state is', () => {
    const ahead = steps.filter(
      ({ event, to }) => event?.type === 'sync.observed' && event.sync.decided && to.matches('syncing'),
    )
    expect(ahead.length).toBeGreaterThan(10)
    for (const { to } of ahead) expect(stateOf(to)).toBe('syncing.finishing.handedOver')
    const over = steps.filter(
      ({ from, event }) =>
        event?.type === 'sync.observed' &&
        event.sync.committed &&
        from.matches('syncing') &&
        // A pause that was requested while the instance joined comes first.
        !from.matches({ syncing: 'joining' }),
    )
    for (const { to } of over) expect(stateOf(to)).toBe('committed.leaving')
  })

  it('an instance joins the commit of the others as soon as it could commit itself', () => {
    const joined = steps.filter(({ to }) => to.hasTag('canCommit') && to.context.sync?.underWay)
    expect(joined).toEqual([])
    const joining = steps.filter(
      ({ from, event }) => from.hasTag('canCommit') && event?.type === 'sync.observed' && event.sync.underWay,
    )
    expect(joining.length).toBeGreaterThan(0)
    for (const { to } of joining) expect(stateOf(to)).toBe('syncing.replicating.committing')
  })

  it('an abort is accepted exactly while a commit is under way and not decided, and leads back to RUNNING', () => {
    everyStateShould((to) => {
      const { commitRequested, decided, canWrite } = to.context
      const isOurs = to.context.failure?.error !== 'LeaseLost'
      const isUnderWay = to.hasTag('COMMITTING') || (to.matches('failed') && commitRequested && isOurs)
      return to.can({ type: 'sync.abort' }) === (isUnderWay && !decided && !canWrite)
    })
    const aborts = steps.filter(
      ({ from, event }) =>
        event?.type === 'sync.observed' &&
        event.sync.aborts > from.context.abortsBefore &&
        from.can({ type: 'sync.abort' }),
    )
    expect(new Set(aborts.map(({ from }) => stateOf(from))).size).toBe(3)
    for (const { to } of aborts) {
      expect(stateOf(to)).toMatch(/^syncing\.replicating\.(applying|hashing)$/)
      expect(to.context).toMatchObject({
        commitRequested: false,
        commitAborted: true,
        commitTimestamp: null,
        reached: false,
      })
      // A crash immediately after the abort changes nothing.
      expect(stateOf(begin(stored(to)))).toBe(stateOf(to))
    }
  })

  it('the direction is swapped exactly when the metadata has moved', () => {
    everyStepShould(({ from, event, to }) => {
      const [before, after] = [from.context.configuration, to.context.configuration]
      if (!before || !after) return true
      const swapped = before.source === after.destination && before.destination === after.source
      const isMove = event?.type === 'xstate.done.actor.metadataMove'
      return swapped === isMove && (swapped || before.source === after.source)
    })
  })

  it('a reversal is under way exactly in reversing, and in failed after the reversal has failed', () => {
    everyStateShould((to) => (to.context.reversing !== null) === to.matches('reversing') || to.matches('failed'))
    everyStateShould((to) => to.context.reversing !== 'moving' || to.context.canWrite)
    everyStateShould((to) => to.context.reversing !== 'preparingDestination' || !to.context.canWrite)
  })

  it('the end of the first verification pass is stored when it is reported, and reset when verification restarts', () => {
    const inSync = steps.filter(({ from }) => from?.matches('syncing'))
    const initiallyVerified = inSync.filter(({ event }) => event?.type === 'verification.initiallyVerified')
    expect(new Set(initiallyVerified.map(({ from }) => stateOf(from as InstanceSnapshot))).size).toBeGreaterThan(5)
    for (const { to } of initiallyVerified) expect(to.context.initiallyVerified).toBe(true)
    for (const { event, to } of inSync) {
      if (event?.type === 'verification.restarted') expect(to.context.initiallyVerified).toBe(false)
    }
  })

  it('a reversed sync that needs no convergence skips the copy', () => {
    const reversed = steps.filter(
      ({ from, to }) =>
        from.matches('reversing') && to.matches('syncing') && !to.context.decided && to.context.convergences === 0,
    )
    expect(reversed.length).toBeGreaterThan(0)
    for (const { to } of reversed) {
      const ready = to.context.configuration?.verification.enabled === false
      expect(stateOf(to)).toMatch(ready ? /applying|committing/ : /hashing/)
    }
  })

  it('exactly one public state is shown', () => {
    everyStateShould((to) => [...to.tags].filter((tag) => tag !== 'canCommit').length === 1)
    everyStateShould((to) => to.hasTag(publicState(to)))
  })

  it('COMMITTED is shown only together with canWrite, and so only once the context is stored', () => {
    everyStateShould((to) => publicState(to) !== 'COMMITTED' || to.context.canWrite)
    for (const before of [null, { canWrite: false }]) {
      everyStateShould((to) => reportedState(to, before) !== 'COMMITTED')
    }
    everyStateShould((to) => reportedState(to, to.context) === publicState(to))
  })

  it('exactly the actors of the current state run', () => {
    everyStateShould((to) => JSON.stringify(running(to).sort()) === JSON.stringify(runs[stateOf(to)] ?? []))
  })

  it('the context has a failure in failed and in no other state', () => {
    everyStateShould((to) => (to.context.failure !== null) === to.matches('failed'))
  })

  it('a failed instance can be resumed and then works again', () => {
    const failed = states.filter((state) => state.matches('failed'))
    const resumptions = steps.filter(({ from, event }) => event?.type === 'sync.resume' && from.matches('failed'))
    expect(resumptions.length).toBe(failed.length)
    expect(failed.length).toBeGreaterThan(20)
    const wrong = resumptions.filter(({ to }) => {
      const { failure, pauseRequested } = to.context
      return to.matches('failed') || running(to).length === 0 || failure !== null || pauseRequested
    })
    expect(wrong.map(describeStep)).toEqual([])
  })

  it('a commit is accepted exactly while canCommit is shown', () => {
    everyStateShould((to) => to.hasTag('canCommit') === to.can(commit))
    everyStateShould((to) => !to.hasTag('canCommit') || to.context.copyCompleted)
  })

  it('completed parts of the sync stay completed', () => {
    for (const field of ['initialised', 'copyCompleted'] as const) {
      everyStepShould((step) => !step.from.context[field] || step.to.context[field] || isConvergence(step))
    }
    everyStepShould(
      ({ from, to }) => !(from.context.reached && from.context.canWrite) || to.context.reached || !to.context.canWrite,
    )
  })

  it('a convergence resets what an instance knows about the copy, exactly when the sync has counted one more convergence', () => {
    const begun = steps.filter(isConvergence)
    expect(new Set(begun.map(({ from }) => stateOf(from))).size).toBeGreaterThan(5)
    for (const { event, to } of begun) {
      expect(event?.type).toBe('sync.observed')
      expect(to.context).toMatchObject({
        copyCompleted: false,
        initiallyVerified: false,
        commitRequested: false,
        attempt: 0,
      })
      const isPlanned = event?.type === 'sync.observed' && event.sync.initialised
      if (!isPlanned) expect(stateOf(to)).toBe('syncing.joining')
      else expect(stateOf(to)).toMatch(/replicating\.copying|paused\.resting/)
    }
    everyStepShould((step) => {
      const { from, event, to } = step
      const isNews = event?.type === 'sync.observed' && event.sync.convergences > from.context.convergences
      const isOver = from.context.decided || from.context.canWrite
      // A pause that was requested before comes first. Such an instance learns of it when it is resumed.
      const isPaused = from.matches({ syncing: 'joining' }) && to.matches('paused')
      if (!isNews) return !isConvergence(step)
      return isConvergence(step) === (!isOver && !isPaused && (from.matches('syncing') || to.matches('syncing')))
    })
  })

  it('an instance finishes a commit only after it has applied every event up to the commit timestamp', () => {
    everyStateShould((to) => !stateOf(to).startsWith('syncing.finishing') || to.context.reached)
    everyStepShould(
      ({ from, event, to }) =>
        from.context.reached ||
        !to.context.reached ||
        event?.type === 'events.reached' ||
        (event?.type === 'sync.observed' && event.sync.decided),
    )
  })

  it('a commit that was interrupted before the decision starts again, and waits for its commit timestamp', () => {
    const interrupted = steps.filter(
      ({ from, event }) =>
        from.context.commitRequested &&
        !from.context.decided &&
        ((event === null && !from.matches('failed')) || (from.matches('failed') && event?.type === 'sync.resume')),
    )
    expect(interrupted.length).toBeGreaterThan(4)
    for (const step of interrupted) {
      expect(stateOf(step.to), describeStep(step)).toBe('syncing.replicating.committing')
      expect(step.to.context).toMatchObject({ reached: false, attempt: 0, commitTimestamp: null })
    }
  })

  it('an instance leaves an attempt that the sync has left, and joins the next one', () => {
    const left = steps.filter(
      ({ from, event }) =>
        event?.type === 'sync.observed' &&
        !event.sync.decided &&
        !from.context.decided &&
        event.sync.aborts === from.context.abortsBefore &&
        from.context.attempt > 0 &&
        !from.matches('failed') &&
        event.sync.convergences === from.context.convergences &&
        event.sync.attempt !== from.context.attempt,
    )
    expect(left.length).toBeGreaterThan(4)
    for (const { event, to } of left) {
      const { attempt, commitTimestamp } = (event as { sync: SyncView }).sync
      expect(stateOf(to)).toBe('syncing.replicating.committing')
      // The instance joins the next attempt with the next view of the sync.
      expect(next(to, event as AnyEvent).context.attempt).toBe(commitTimestamp ? attempt : 0)
    }
  })
})

describe('a pause', () => {
  it('takes effect only after both workers are drained', () => {
    everyStepShould((step) => {
      const { from, event, to } = step
      const paused = event !== null && stateOf(from).endsWith('draining') && to.matches('paused')
      // A convergence makes the work of both workers void, and stops them.
      return !paused || (to.context.copyDrained && to.context.eventsDrained) || isConvergence(step)
    })
  })

  it('stays requested while the instance joins again or its workers drain', () => {
    everyStateShould((to) => {
      if (!to.context.pauseRequested || !to.matches('syncing')) return true
      return ['syncing.joining', 'syncing.replicating.draining'].includes(stateOf(to))
    })
  })
})

describe('after a crash', () => {
  it('the instance continues in its last state, and a requested pause has taken effect', () => {
    everyStepShould(({ from, event, to }) => {
      if (event !== null) return true
      if (from.context.pauseRequested && stateOf(from).startsWith('syncing')) return to.matches('paused')
      if (stateOf(from) === 'syncing.finishing.awaiting') return stateOf(to) === 'syncing.replicating.committing'
      // An instance at rest starts the work of its state again.
      if (['paused', 'failed', 'committed'].some((rest) => from.matches(rest as 'paused')))
        return stateOf(to).split('.')[0] === stateOf(from).split('.')[0]
      return stateOf(to) === stateOf(from)
    })
  })

  it('the context is unchanged, except for the progress of a commit', () => {
    everyStepShould(({ from, event, to }) => {
      if (event !== null) return true
      const reached = from.context.reached && from.context.decided
      const { commitTimestamp, attempt } = from.context.decided ? from.context : { commitTimestamp: null, attempt: 0 }
      return (
        JSON.stringify({ ...from.context, attempt, commitTimestamp, reached, sync: null }) ===
        JSON.stringify(to.context)
      )
    })
  })
})

describe('a failure reported from outside', () => {
  it.each(Object.keys(runs).filter((state) => !/^(failed|paused|committed)/.test(state)))(
    'leads from %s to failed, because work is under way there',
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
    'has an effect in %s only when another process has the lease, because no resume could continue then',
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

  it('is stored in the context', () => {
    const from = steps.find(({ to }) => stateOf(to).endsWith('copying'))?.to as InstanceSnapshot
    expect(next(from, { type: 'worker.failed', failure }).context.failure).toEqual(failure)
  })
})
