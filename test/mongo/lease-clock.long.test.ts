import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * The clock of a host is wrong. The destination's clock sets the expiry of a lease, and the holder measures how long its lease
 * is valid with the clocks of its own host.
 */

const one = oneSet()
const minuteMS = 60_000
let incarnations = 0

const stopping: (() => Promise<unknown>)[] = []
afterEach(async () => {
  vi.useRealTimers()
  for (const stop of stopping.splice(0)) await stop()
})

function contender(name: string, id: string): Lease {
  const context = testContext()
  const incarnation = `clock-${incarnations++}`
  const cluster = testCluster(one.set.uri, `tandem:${id}:${incarnation}`)
  const lease = new Lease(cluster, name, { id, incarnation }, context)
  stopping.push(async () => {
    context.stop()
    await lease.release()
    await cluster.close()
  })
  return lease
}

/** Shifts the wall clock of this host. Timers and the monotonic clock do not change. */
function setClock(offByMS: number): void {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + offByMS })
}

const isTaken = async (acquiring: Promise<void>, withinMS: number): Promise<boolean> =>
  await Promise.race([acquiring.then(() => true), delay(withinMS, false)])

it.each([
  ['stood still', () => vi.spyOn(performance, 'now').mockReturnValue(performance.now()), 20_000],
  ['was set back', () => vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 20_000), -10 * minuteMS],
])(
  'a holder may not write after its machine was suspended, even if one of its clocks %s',
  async (what, suspend, offByMS) => {
    const holder = contender(what, 'a')
    await holder.acquire()
    holder.fence()
    setClock(offByMS)
    const monotonic = suspend()
    try {
      expect(() => holder.fence()).toThrow('could not be renewed')
    } finally {
      monotonic.mockRestore()
    }
  },
)

describe('a clock that is wrong by ten minutes', () => {
  it.each([
    ['fast', 10 * minuteMS],
    ['slow', -10 * minuteMS],
  ])('%s: no other process takes a lease that is held, and the holder may write', async (name, offByMS) => {
    const holder = contender(name, 'a')
    await holder.acquire()
    setClock(offByMS)
    const other = contender(name, 'b')
    const acquiring = other.acquire()
    acquiring.catch(() => {})
    expect(await isTaken(acquiring, 4_000)).toBe(false)
    holder.fence()
  })

  it.each([
    ['taken by a fast host', 10 * minuteMS],
    ['taken by a slow host', -10 * minuteMS],
  ])('a lease %s lasts as long as any other', async (name, offByMS) => {
    setClock(offByMS)
    const holder = contender(name, 'a')
    await holder.acquire()
    vi.useRealTimers()
    const [held] = (
      await one.client.db(metadataDatabase).command({
        aggregate: 'leases',
        pipeline: [{ $match: { _id: name } }, { $project: { leftMS: { $subtract: ['$expiresAt', '$$NOW'] } } }],
        cursor: {},
      })
    )['cursor'].firstBatch
    expect(Number(held.leftMS)).toBeGreaterThan(5_000)
    expect(Number(held.leftMS)).toBeLessThanOrEqual(10_000)
  })
})
