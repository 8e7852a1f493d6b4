import { getEventListeners } from 'node:events'
import { setImmediate as breath } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it, vi } from 'vitest'
import { createActor, fromCallback, fromPromise } from 'xstate'
import { eventApplicationMachine } from '../../machines/event-application.ts'
import { EventApplication } from '../../src/apply/event-application.ts'
import { OwnedPartitions, type OwnedPartitionsParts } from '../../src/apply/owned-partitions.ts'
import type { Coordination } from '../../src/coordination/coordination.ts'
import { type Deferred, deferred } from '../../src/domain/deferred.ts'
import { LongWait } from '../../src/domain/long-wait.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { RetryMonitor } from '../../src/mongo/retry.ts'
import { type WatchRoleParts, watchRole } from '../../src/session/watch-role.ts'
import { Pace } from '../../src/throttle/pace.ts'

/** Some loops wait for days for one end, and wake several times a second. No wake-up may leave memory behind. */

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** A coordination that changes as often as the test asks for it. */
class Changing {
  #change: Deferred<void> = deferred()
  turns = 0
  readonly coordination = {
    held: new Map([[0, 1]]),
    staying: new Set([0]),
    isAlone: true,
    leading: false,
    coordinatorID: null,
    release: async () => {},
    changed: () => {
      this.turns += 1
      return this.#change.promise
    },
  } as unknown as Coordination

  async change(): Promise<void> {
    const change = this.#change
    this.#change = deferred()
    change.resolve()
    await breath()
  }

  /** Returns the bytes of memory that each turn leaves behind. */
  async growth(turns: number): Promise<number> {
    for (let turn = 0; turn < 500; turn++) await this.change()
    collect()
    const [before, first] = [process.memoryUsage().heapUsed, this.turns]
    for (let turn = 0; turn < turns; turn++) await this.change()
    collect()
    expect(this.turns - first).toBeGreaterThanOrEqual(turns)
    return (process.memoryUsage().heapUsed - before) / turns
  }
}

const turns = 10_000
/**
 * A promise reaction that is retained takes more than 300 bytes. The test itself leaves about 30 bytes behind, and more
 * on a busy machine.
 */
const bytesMax = 100

it('the application of owned partitions retains no memory when ownership changes', async () => {
  const changing = new Changing()
  const drained = deferred<void>()
  vi.spyOn(EventApplication.prototype, 'run').mockReturnValue(drained.promise)
  vi.spyOn(EventApplication.prototype, 'drain').mockImplementation(() => drained.resolve())
  const owned = new OwnedPartitions({
    coordination: changing.coordination,
    metadata: {
      collections: { claimCopies: async () => {} },
      loadPartitions: async () => new Map([[0, { kind: 'time', time: 1n }]]),
    },
    catalog: { entries: () => [] },
    context: { signal: new AbortController().signal },
    partitionCount: 1,
    reload: async () => {},
  } as unknown as OwnedPartitionsParts)
  expect(await owned.claim()).toBe(1)
  const run = owned.apply(() => {})
  await vi.waitFor(() => expect(changing.turns).toBeGreaterThan(0))
  expect(await changing.growth(turns)).toBeLessThan(bytesMax)
  owned.drain()
  await run
})

it('the event application machine retains no memory while it waits for partitions', async () => {
  let changed = 0
  let change = deferred<void>()
  const machine = eventApplicationMachine.provide({
    actors: {
      replication: fromCallback(({ sendBack }) => sendBack({ type: 'replication.opened' })),
      barriers: fromPromise(() => new Promise(() => {})),
      claim: fromPromise(async () => 0),
      pass: fromPromise(async () => false),
      change: fromPromise(() => {
        changed += 1
        change = deferred()
        return change.promise
      }),
    },
  })
  const actor = createActor(machine).start()
  const turn = async (count: number): Promise<void> => {
    for (let until = changed + count; changed < until; ) {
      change.resolve()
      await breath()
    }
  }
  await turn(500)
  collect()
  const before = process.memoryUsage().heapUsed
  await turn(turns)
  collect()
  expect((process.memoryUsage().heapUsed - before) / turns).toBeLessThan(bytesMax)
  actor.stop()
})

it('an instance that watches the coordinator role retains no memory when ownership changes', async () => {
  const changing = new Changing()
  const stopped = new AbortController()
  const parts = {
    coordination: changing.coordination,
    isLeaseLost: () => false,
  } as unknown as WatchRoleParts
  const run = watchRole(parts, () => {}, stopped.signal)
  expect(await changing.growth(turns)).toBeLessThan(bytesMax)
  stopped.abort()
  await run
})

/**
 * Returns the number of listeners and of dependent signals that a signal retains. Node keeps the dependent signals of
 * `AbortSignal.any` in a set of weak references, which do not disappear with the dependent signals.
 */
function retainedBy(signal: AbortSignal): number {
  const key = Object.getOwnPropertySymbols(signal).find(({ description }) => description === 'kDependantSignals')
  const dependent = key && (signal as unknown as Record<symbol, Set<unknown> | null>)[key]
  return getEventListeners(signal, 'abort').length + (dependent?.size ?? 0)
}

it('the test counts what a signal retains for AbortSignal.any', () => {
  const { signal } = new AbortController()
  for (let count = 0; count < 10; count++) AbortSignal.any([signal])
  expect(retainedBy(signal)).toBe(10)
})

it('an instance that waits for partitions retains nothing in the signals of the sync', async () => {
  const changing = new Changing()
  const { signal } = new AbortController()
  const parts = { coordination: changing.coordination, context: { signal } } as unknown as OwnedPartitionsParts
  const owned = new OwnedPartitions(parts)
  for (let count = 0; count < 10; count++) {
    const change = owned.change()
    await changing.change()
    await change
  }
  expect(changing.turns).toBe(10)
  expect(retainedBy(signal)).toBe(0)
  await owned.close()
})

it('a read that waits for its rate retains nothing in the signal of the sync', async () => {
  const { signal } = new AbortController()
  const pace = new Pace()
  pace.set(1_000)
  for (let count = 0; count < 10; count++) {
    pace.spend(1)
    await pace.earned(signal)
  }
  expect(retainedBy(signal)).toBe(0)
  pace.spend(1_000_000)
  const earned = pace.earned(signal)
  // Each change of the rate wakes the read, which waits again at the new rate.
  for (let rate = 1; rate <= 10; rate++) {
    pace.set(rate)
    await breath()
  }
  expect(retainedBy(signal)).toBe(1)
  pace.set(null)
  await earned
  expect(retainedBy(signal)).toBe(0)
})

it('a write that ends with the lease term retains nothing in the signals of the sync and of the term', async () => {
  const [{ signal }, { signal: term }] = [new AbortController(), new AbortController()]
  const write = vi.fn(async () => ({ n: 1 }))
  const metadata = new Metadata({ write } as unknown as Cluster, { monitor: new RetryMonitor(), signal })
  for (let count = 0; count < 10; count++) await metadata.saveInstance('a', {}, term)
  expect(write).toHaveBeenCalledTimes(10)
  expect([retainedBy(signal), retainedBy(term)]).toEqual([0, 0])
})

it('a long wait ends at the change, at the end, and immediately after the end', async () => {
  const end = deferred<void>()
  const wait = new LongWait(end.promise)
  const change = deferred<void>()
  change.resolve()
  await wait.until(change.promise, new Promise(() => {}))
  expect(wait.over).toBe(false)
  const waiting = [wait.until(new Promise(() => {})), wait.until(new Promise(() => {}))]
  end.resolve()
  await Promise.all(waiting)
  expect(wait.over).toBe(true)
  await wait.until(new Promise(() => {}))
  const rejected = new LongWait(Promise.reject(new Error('a failure')))
  await rejected.until(new Promise(() => {}))
  expect(rejected.over).toBe(true)
})
