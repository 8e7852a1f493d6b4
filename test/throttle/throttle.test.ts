import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { BackOff } from '../../src/domain/back-off.ts'
import { noLimits } from '../../src/domain/limits.ts'
import { Throttle } from '../../src/throttle/throttle.ts'

const { signal: never } = new AbortController()

/** One write at a time, to a destination that has suffered so many times, a few seconds apart. */
function suffering(times: number): Throttle {
  let now = 0
  const backOff = new BackOff(() => now)
  for (let time = 0; time < times; time += 1) {
    now += 5_000
    backOff.record('the cache is full')
  }
  return new Throttle(1, backOff)
}

/** Milliseconds that a write of so many takes, with the rest after it. */
async function write(throttle: Throttle, tookMS: number, signal = never): Promise<number> {
  const began = performance.now()
  await throttle.write(signal, () => sleep(tookMS))
  return performance.now() - began
}

describe('writes of the copy', () => {
  it('are followed by a rest while the destination suffers, as a multiple of what they took', async () => {
    // Timers of Node's may end a moment early.
    expect(await write(suffering(3), 50)).toBeGreaterThan(8 * 48)
    expect(await write(suffering(0), 50)).toBeLessThan(10 * 50)
  })

  it('rest no longer than the destination suffers', async () => {
    const throttle = suffering(7)
    const writing = write(throttle, 50)
    await sleep(100)
    throttle.unwatch()
    // 127 times 50 ms it would have been.
    expect(await writing).toBeLessThan(4_000)
    expect(throttle.report).not.toHaveProperty('backedOff')
  })

  it('that fail say so at once', async () => {
    const throttle = suffering(7)
    const began = performance.now()
    const failing = throttle.write(never, async () => {
      await sleep(50)
      throw new Error('of this write')
    })
    await expect(failing).rejects.toThrow('of this write')
    expect(performance.now() - began).toBeLessThan(4_000)
  })

  it('end their rest when stopped', async () => {
    const stop = new AbortController()
    const writing = write(suffering(7), 50, stop.signal)
    await sleep(100)
    stop.abort()
    expect(await writing).toBeLessThan(4_000)
  })
})

describe('limits', () => {
  it('are reported to the listeners, until they listen no longer', () => {
    const throttle = new Throttle(3)
    let told = 0
    const stop = throttle.onChanged(() => {
      told += 1
    })
    throttle.set({ ...noLimits, readConcurrency: 7 })
    expect([told, throttle.readConcurrency, throttle.writeConcurrency]).toEqual([1, 7, 4])
    stop()
    throttle.set(noLimits)
    expect([told, throttle.readConcurrency]).toEqual([1, 4])
  })

  it('are worth showing when one is set or the destination is spared', () => {
    const throttle = new Throttle(3)
    expect(throttle.isActive).toBe(false)
    throttle.set({ ...noLimits, bytesPerSecond: 2_000_000 })
    expect(throttle.isActive).toBe(true)
    expect(throttle.report).toEqual({ bytesPerSecond: 2_000_000, readConcurrency: 4, writeConcurrency: 4 })
    expect(suffering(1).isActive).toBe(true)
  })

  it('of bytes make batches small, so that the rate is kept within a moment', () => {
    const throttle = new Throttle(3)
    expect(throttle.batchBytes(4_000_000)).toBe(4_000_000)
    throttle.set({ ...noLimits, bytesPerSecond: 2_000_000 })
    expect(throttle.batchBytes(4_000_000)).toBe(500_000)
  })
})
