import { describe, expect, it } from 'vitest'
import { createActor } from 'xstate'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type SyncContext } from '../../machines/sync-context.ts'
import { stepOf } from '../../machines/sync-view.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { RetryMonitor } from '../../src/mongo/retry.ts'
import { withActors } from '../../src/session/instance-actors.ts'
import type { SyncSession } from '../../src/session/sync-session.ts'
import { begin, configuration, type InstanceSnapshot, stateOf, views } from './instance-model.ts'
import { settle } from './stub-workers.ts'

/** Tests what the real actors of a commit and a reversal do first in a step. The work that follows is replaced. */

const converting: Partial<InstanceContext> = {
  ...{ initialised: true, copyCompleted: true, initiallyVerified: true },
  ...{ commitRequested: true, commitTimestamp: '7', reached: true, decided: true, canWrite: true },
}
const reversing: Partial<InstanceContext> = { ...converting, commitRequested: false, reversing: 'moving' }
const never = (): Promise<never> => new Promise(() => {})
const context: SyncContext = { ...freshSync, attempt: 1, term: 1 }

/** Starts an instance that has lost its lease. Only the holder of the lease can store the instance's context. */
function evicted(instance: Partial<InstanceContext>) {
  const [ended, lease] = [deferred<void>(), deferred<void>()]
  const did: string[] = []
  let held = false
  let sync = syncMachine.resolveState({ value: { decided: 'converting' }, context })
  const session = {
    context: { monitor: new RetryMonitor() },
    lease: {
      get held() {
        return held
      },
    },
    joinElection: async () => {
      did.push('joinElection')
      held = true
      lease.resolve()
    },
    firstState: async () => sync,
    verify: never,
    resign: never,
    verification: { observed: () => {} },
    coordination: { leading: true },
    metadataIndexes: { create: () => {} },
    peers: {
      get view() {
        const isCommitted = sync.matches('committed')
        return { ...(isCommitted ? views.committed : views.converting), revision: isCommitted ? 2 : 1 }
      },
      worked: { term: 1, attempt: 1 },
      load: async () => sync,
      elected: async () => sync,
      report: async () => {
        sync = syncMachine.resolveState({ value: 'committed', context })
        return sync
      },
      wait: settle,
    },
    steps: { [stepOf(sync) ?? '']: async () => void did.push('convert') },
  }
  const machine = withActors({
    current: () => session as unknown as SyncSession,
    part: () => 'arrived',
    asked: () => ({ abortsBefore: 0, commitUntil: null, dryRun: false, failure: null }),
    ended: () => ended.promise,
    storing: () => lease.promise,
    swapDirection: async () => void did.push('swapDirection'),
    report: (event) => actor.send(event),
  })
  const actor = createActor(machine, { input: { ...begin().context, configuration, ...instance } })
  actor.start()
  return { did, ended, stateOf: () => stateOf(actor.getSnapshot() as InstanceSnapshot), stop: () => actor.stop() }
}

describe('a step of an evicted instance', () => {
  it('takes the lease before it waits for the context to be stored', async () => {
    const instance = evicted(converting)
    instance.ended.resolve()
    for (let turn = 0; turn < 8; turn++) await settle()
    expect(instance.did).toEqual(['joinElection', 'convert'])
    expect(instance.stateOf()).toBe('committed.leaving')
    instance.stop()
  })

  it('takes the lease first in a reversal, too', async () => {
    const instance = evicted(reversing)
    instance.ended.resolve()
    for (let turn = 0; turn < 4; turn++) await settle()
    expect(instance.did.slice(0, 2)).toEqual(['joinElection', 'swapDirection'])
    instance.stop()
  })

  it('does not take the lease while work of its last lease term is under way, because that work could write again', async () => {
    const instance = evicted(converting)
    for (let turn = 0; turn < 4; turn++) await settle()
    expect([instance.did, instance.stateOf()]).toEqual([[], 'syncing.finishing.handedOver'])
    instance.ended.resolve()
    for (let turn = 0; turn < 8; turn++) await settle()
    expect(instance.stateOf()).toBe('committed.leaving')
    instance.stop()
  })
})
