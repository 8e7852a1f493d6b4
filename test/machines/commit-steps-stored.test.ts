import { describe, expect, it } from 'vitest'
import { createActor } from 'xstate'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { withActors } from '../../src/sync/instance-actors.ts'
import type { SyncWork } from '../../src/sync/sync-work.ts'
import { begin, configuration, type InstanceSnapshot, stateOf } from './instance-model.ts'
import { settle } from './stub-workers.ts'

/** What the real actors of the commit's and the reversal's steps do first, before work that is not there. */

const converting: Partial<InstanceContext> = {
  ...{ initialised: true, copyCompleted: true, hashed: true },
  ...{ commitRequested: true, commitPoint: '7', reached: true, canWrite: true },
}
const reversing: Partial<InstanceContext> = { ...converting, commitRequested: false, reversing: 'moving' }
const never = (): Promise<never> => new Promise(() => {})

/** An instance whose lease is lost: only its holder can store what it has come to. */
function buried(context: Partial<InstanceContext>) {
  const [ended, lease] = [deferred<void>(), deferred<void>()]
  const did: string[] = []
  const lead = async (): Promise<void> => {
    did.push('lead')
    lease.resolve()
  }
  const work = {
    lead,
    verify: never,
    adapt: () => {
      did.push('adapt')
      return never()
    },
    commit: { finishIndexes: async () => void did.push('finishIndexes') },
  }
  const machine = withActors({
    work: () => work as unknown as SyncWork,
    ended: () => ended.promise,
    storing: () => lease.promise,
    turnAround: async () => void did.push('turnAround'),
    report: () => {},
  })
  const actor = createActor(machine, { input: { ...begin().context, configuration, ...context } })
  actor.start()
  return { did, ended, stateOf: () => stateOf(actor.getSnapshot() as InstanceSnapshot), stop: () => actor.stop() }
}

describe('a step of an instance that was buried', () => {
  it('takes the lease before it waits for what only its holder can store', async () => {
    const instance = buried(converting)
    instance.ended.resolve()
    await settle()
    await settle()
    expect(instance.did).toEqual(['lead', 'finishIndexes'])
    expect(instance.stateOf()).toBe('committed')
    instance.stop()
  })

  it('does so in a reversal as well', async () => {
    const instance = buried(reversing)
    instance.ended.resolve()
    for (let step = 0; step < 4; step++) await settle()
    expect(instance.did).toEqual(['lead', 'turnAround', 'lead', 'adapt'])
    instance.stop()
  })

  it('does not, while anything of its last life is under way: that could write again', async () => {
    const instance = buried(converting)
    for (let turn = 0; turn < 4; turn++) await settle()
    expect([instance.did, instance.stateOf()]).toEqual([[], 'syncing.finishing.converting'])
    instance.ended.resolve()
    await settle()
    await settle()
    expect(instance.stateOf()).toBe('committed')
    instance.stop()
  })
})
