import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { BackOff } from '../../src/domain/back-off.ts'
import { noLimits } from '../../src/domain/limits.ts'
import { Throttle } from '../../src/throttle/throttle.ts'

const { signal: never } = new AbortController()

/** Returns a throttle for one write at a time. The destination has reported overload this many times, a few seconds apart. */
function overloaded(times: number): Throttle {
  let now = 0
  const backOff = new BackOff(() => now)
  for (let time = 0; time < times; time += 1) {
    now += 5_000
    backOff.record('the cache is full')
  }
  return new Throttle(1, backOff)
}

/** Returns the milliseconds that a write of `tookMS` takes, including the pause after it. */
async function write(throttle: Throttle, tookMS: number, signal = never): Promise<number> {
  const began = performance.now()
  await throttle.write(signal, () => sleep(tookMS))
  return performance.now() - began
}

describe('writes of the copy', () => {
  it('are followed by a pause while the destination is overloaded; the pause is a multiple of their duration', async () => {
    // Timers of Node.js may end slightly early.
    expect(await write(overloaded(3), 50)).toBeGreaterThan(8 * 48)
    expect(await write(overloaded(0), 50)).toBeLessThan(10 * 50)
  })

  it('are followed by a rest at load level 1, and by none at level 3', async () => {
    expect(await write(new Throttle(1), 50)).toBeGreaterThan(4 * 48)
    expect(await write(new Throttle(3), 50)).toBeLessThan(4 * 48)
  })

  it('end their pause when the destination is no longer watched for overload', async () => {
    const throttle = overloaded(7)
    const writing = write(throttle, 50)
    await sleep(100)
    throttle.unwatch()
    // The full pause would be 127 times 50 ms.
    expect(await writing).toBeLessThan(4_000)
    expect(throttle.report).not.toHaveProperty('backedOff')
  })

  it('reject immediately when they fail', async () => {
    const throttle = overloaded(7)
    const began = performance.now()
    const failing = throttle.write(never, async () => {
      await sleep(50)
      throw new Error('of this write')
    })
    await expect(failing).rejects.toThrow('of this write')
    expect(performance.now() - began).toBeLessThan(4_000)
  })

  it('end their pause when they are stopped', async () => {
    const stop = new AbortController()
    const writing = write(overloaded(7), 50, stop.signal)
    await sleep(100)
    stop.abort()
    expect(await writing).toBeLessThan(4_000)
  })
})

it('batches are smaller at a low load level', () => {
  expect(new Throttle(1).batchBytes(4_000_000)).toBeLessThan(1_000_000)
  expect(new Throttle(3).batchBytes(4_000_000)).toBe(4_000_000)
})

describe('limits', () => {
  it('are reported to listeners until they unsubscribe', () => {
    const throttle = new Throttle(3)
    let notified = 0
    const stop = throttle.onChanged(() => {
      notified += 1
    })
    throttle.set({ ...noLimits, readConcurrency: 7 })
    expect([notified, throttle.readConcurrency, throttle.writeConcurrency]).toEqual([1, 7, 4])
    stop()
    throttle.set(noLimits)
    expect([notified, throttle.readConcurrency]).toEqual([1, 4])
  })

  it('are active when one is set or the copy backs off', () => {
    const throttle = new Throttle(3)
    expect(throttle.isActive).toBe(false)
    throttle.set({ ...noLimits, bytesPerSecond: 2_000_000 })
    expect(throttle.isActive).toBe(true)
    expect(throttle.report).toEqual({ bytesPerSecond: 2_000_000, readConcurrency: 4, writeConcurrency: 4 })
    expect(overloaded(1).isActive).toBe(true)
  })

  it('of bytes per second make batches smaller, so that the rate is also kept over short times', () => {
    const throttle = new Throttle(3)
    expect(throttle.batchBytes(4_000_000)).toBe(4_000_000)
    throttle.set({ ...noLimits, bytesPerSecond: 2_000_000 })
    expect(throttle.batchBytes(4_000_000)).toBe(500_000)
  })
})
