import { setImmediate as breath } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it, vi } from 'vitest'
import { createActor, fromCallback, fromPromise } from 'xstate'
import { eventApplicationMachine } from '../../machines/event-application.ts'
import type { EventApplicationParts } from '../../src/apply/event-application.ts'
import { OwnedPartitions, type OwnedPartitionsParts } from '../../src/apply/owned-partitions.ts'
import type { Coordination } from '../../src/coordination/coordination.ts'
import { type Deferred, deferred } from '../../src/domain/deferred.ts'
import { LongWait } from '../../src/domain/long-wait.ts'
import { type WatchRoleParts, watchRole } from '../../src/session/watch-role.ts'

/** Loops that wake several times a second for days, beside something that ends once: nothing may stay of each turn. */

vi.mock('../../src/apply/event-application.ts', () => ({
  EventApplication: class {
    readonly totalEventsApplied = 0
    readonly appliedTime = 0n
    readonly #drained = deferred<void>()
    readonly partitions: EventApplicationParts['partitions']
    constructor({ partitions }: EventApplicationParts) {
      this.partitions = partitions
    }
    run(): Promise<void> {
      return this.#drained.promise
    }
    drain(): void {
      this.#drained.resolve()
    }
  },
}))

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** Changes as often as it is asked to. */
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

  /** Bytes that stay of each turn. */
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
/** A reaction that stays takes more than 300 bytes; what the test itself leaves behind is about 30, more on a busy machine. */
const bytesMax = 100

it('owned partitions: nothing stays of a turn while their events are applied', async () => {
  const changing = new Changing()
  const owned = new OwnedPartitions({
    coordination: changing.coordination,
    metadata: {
      collections: { claimCopies: async () => {} },
      loadPartitions: async () => new Map([[0, { kind: 'time', time: 1n }]]),
    },
    catalogue: { entries: () => [] },
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

it('event application without partitions: nothing stays of a turn of its machine', async () => {
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

it('the verification of a follower: nothing stays of a turn until it is stopped', async () => {
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

it('a long wait ends with the change, with the end, and at once after it', async () => {
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
