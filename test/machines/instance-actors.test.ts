import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { InstanceContext } from '../../machines/instance-context.ts'
import type { SyncCommand, WorkerReport } from '../../machines/protocol.ts'
import type { SyncView } from '../../machines/sync-view.ts'
import {
  commands,
  commit,
  configuration,
  type InstanceSnapshot,
  promises,
  stateOf,
  stored,
  syncObserved,
  views,
  workers,
} from './instance-model.ts'
import { StubWorkers, settle } from './stub-workers.ts'

const start: SyncCommand = { type: 'sync.start', configuration }

/** Reports that the other instances may cause, whatever this instance does. */
const others: WorkerReport[] = [
  { type: 'lease.evicted' },
  ...(['applying', 'applyingAgain', 'aborted'] as const).map(syncObserved),
]

type Step =
  | { do: 'send'; command: SyncCommand | WorkerReport }
  | { do: 'proceed' | 'fail'; id: string }
  | { do: 'crash' }

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...commands).map((command) => ({ do: 'send' as const, command })) },
  { weight: 6, arbitrary: fc.constantFrom(...promises, ...workers).map((id) => ({ do: 'proceed' as const, id })) },
  { weight: 1, arbitrary: fc.constantFrom(...promises, ...workers).map((id) => ({ do: 'fail' as const, id })) },
  { weight: 1, arbitrary: fc.constantFrom(...others).map((command) => ({ do: 'send' as const, command })) },
  { weight: 1, arbitrary: fc.constant({ do: 'crash' as const }) },
)

const untilCommitTimestamp: Step[] = [
  { do: 'send', command: start },
  { do: 'send', command: syncObserved('replicating') },
  { do: 'proceed', id: 'collectionCopy' },
  { do: 'send', command: commit },
  { do: 'send', command: syncObserved('applying') },
]

const snapshotOf = (stubs: StubWorkers) => stubs.actor.getSnapshot() as InstanceSnapshot
const atRest = ['idle', 'committed.left']
const undoes = ['paused.resting', 'failed.resting']

function check(stubs: StubWorkers): void {
  const snapshot = snapshotOf(stubs)
  expect(snapshot.status).toBe('active')
  expect(stubs.doubled).toEqual([])
  if (atRest.includes(stateOf(snapshot))) expect([...stubs.running.keys()]).toEqual([])
  if (stateOf(snapshot) === 'failed.watching')
    expect([...stubs.running.keys()]).toEqual(['syncFollower', 'commitDeadline', 'undo'])
  if (undoes.includes(stateOf(snapshot))) expect([...stubs.running.keys()]).toEqual(['undo'])
  if (snapshot.context.pauseRequested && snapshot.matches('syncing')) {
    expect(['syncing.joining', 'syncing.replicating.draining']).toContain(stateOf(snapshot))
  }
}

async function walk(steps: Step[]): Promise<StubWorkers> {
  let stubs = new StubWorkers()
  let canWrite = false
  for (const step of steps) {
    const before = snapshotOf(stubs)
    const reversed = step.do === 'send' && step.command.type === 'sync.reverse'
    const wasCommitted = before.matches('committed') && !reversed
    const swapsDirection = step.do === 'proceed' && step.id === 'metadataMove'
    if (step.do === 'send') {
      stubs.actor.send(step.command)
      await settle()
    } else if (step.do === 'crash') {
      const context: InstanceContext = stored(snapshotOf(stubs))
      stubs.actor.stop()
      stubs = new StubWorkers(context)
    } else await stubs[step.do](step.id)
    check(stubs)
    const { context } = snapshotOf(stubs)
    if (canWrite && !swapsDirection) expect(context.canWrite).toBe(true)
    if (wasCommitted) expect(snapshotOf(stubs).matches('committed')).toBe(true)
    canWrite = context.canWrite
  }
  return stubs
}

/** Returns the command that an operator sends next to complete the migration; null when none is needed. */
function nextCommand(stubs: StubWorkers): SyncCommand | null {
  const snapshot = snapshotOf(stubs)
  if (snapshot.matches('idle')) return start
  if (snapshot.matches('paused') || snapshot.matches('failed')) return { type: 'sync.resume' }
  // The stored sync returns this number of aborts when it accepts a request.
  return snapshot.hasTag('canCommit') ? { ...commit, abortsBefore: nextView(stubs).aborts } : null
}

/** Returns the view of the sync after the coordinator's next step, for an instance with this snapshot. */
function nextView(stubs: StubWorkers): SyncView {
  const snapshot = snapshotOf(stubs)
  const { aborts = 0, revision = 1 } = snapshot.context.sync ?? {}
  const known = {
    aborts: Math.max(aborts, snapshot.context.abortsBefore),
    revision,
    attempt: snapshot.context.attempt || 1,
  }
  if (snapshot.matches({ syncing: 'finishing' })) {
    return { ...(snapshot.context.canWrite ? views.committed : views.converting), ...known }
  }
  return { ...(snapshot.context.commitRequested ? views.applying : views.replicating), ...known }
}

describe('an instance with workers that act by themselves', () => {
  it('never runs two workers of a kind, and runs none at rest, in any sequence of commands, ends, failures and crashes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const stubs = await walk([{ do: 'send', command: start }, ...steps])
        stubs.actor.stop()
      }),
      { numRuns: 120 },
    )
  })

  it('can reach committed after any sequence of commands, ends, failures and crashes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        const stubs = await walk(steps)
        for (let round = 0; round < 24 && stateOf(snapshotOf(stubs)) !== 'committed.left'; round++) {
          const command = nextCommand(stubs)
          if (command) stubs.actor.send(command)
          stubs.sync = nextView(stubs)
          for (const id of [...stubs.running.keys()]) await stubs.proceed(id)
          check(stubs)
        }
        expect(stateOf(snapshotOf(stubs))).toBe('committed.left')
        expect(snapshotOf(stubs).context.canWrite).toBe(true)
        stubs.actor.stop()
      }),
      { numRuns: 120 },
    )
  })

  it('sends one drain order to each worker for a pause', async () => {
    const stubs = await walk([
      { do: 'send', command: start },
      { do: 'send', command: syncObserved('replicating') },
      { do: 'send', command: { type: 'sync.pause' } },
    ])
    stubs.actor.send({ type: 'sync.pause' })
    expect(stubs.orders).toEqual([
      { to: 'collectionCopy', order: { type: 'worker.drain' } },
      { to: 'eventApplication', order: { type: 'worker.drain' } },
    ])
    expect([...stubs.running.keys()]).toEqual(['syncFollower', 'verification', 'collectionCopy', 'eventApplication'])
    stubs.actor.stop()
  })

  it('sends the drain order again to its new workers when it is evicted during a pause, and completes the pause', async () => {
    const stubs = await walk([
      { do: 'send', command: start },
      { do: 'send', command: syncObserved('replicating') },
      { do: 'send', command: { type: 'sync.pause' } },
      { do: 'send', command: { type: 'lease.evicted' } },
    ])
    expect(stubs.orders.slice(2)).toEqual([
      { to: 'collectionCopy', order: { type: 'worker.drain' } },
      { to: 'eventApplication', order: { type: 'worker.drain' } },
    ])
    await stubs.proceed('collectionCopy')
    await stubs.proceed('eventApplication')
    expect(stateOf(snapshotOf(stubs))).toBe('paused.holding')
    stubs.actor.stop()
  })

  it('sends the commit timestamp to event application', async () => {
    const stubs = await walk(untilCommitTimestamp)
    expect(stubs.orders).toEqual([{ to: 'eventApplication', order: { type: 'worker.drainTo', commitTimestamp: '7' } }])
    await stubs.proceed('eventApplication')
    expect(stateOf(snapshotOf(stubs))).toBe('syncing.finishing.awaiting')
    expect([...stubs.running.keys()]).toEqual(['syncFollower', 'verification', 'commitDeadline'])
    stubs.actor.stop()
  })
})
