import { describe, expect, it } from 'vitest'
import { StoppedError } from '../../src/domain/errors.ts'
import { Pace } from '../../src/throttle/pace.ts'

const { signal: never } = new AbortController()

/** Returns the milliseconds for which the pace makes a caller wait. */
async function wait(pace: Pace, signal = never): Promise<number> {
  const began = performance.now()
  await pace.earned(signal)
  return performance.now() - began
}

describe('a pace', () => {
  it('does not delay without a rate', async () => {
    const pace = new Pace()
    pace.spend(1e12)
    await pace.earned(never)
    expect(pace.bytesPerSecond).toBeNull()
  })

  it('adds up the bytes of all callers', async () => {
    const pace = new Pace()
    pace.set(1_000_000)
    for (let one = 0; one < 4; one += 1) pace.spend(50_000)
    // A timer of Node.js may end slightly early.
    expect(await wait(pace)).toBeGreaterThan(190)
    await pace.earned(never)
  })

  it('applies a changed rate immediately, also to callers that already wait', async () => {
    const pace = new Pace()
    pace.set(1_000)
    pace.spend(1_000_000)
    const waiting = wait(pace)
    pace.set(10_000_000)
    const waited = await waiting
    expect(waited).toBeGreaterThan(90)
    expect(waited).toBeLessThan(20_000)
    pace.spend(1e12)
    const endless = wait(pace)
    pace.set(null)
    await endless
  })

  it('stops waiting when it is stopped', async () => {
    const pace = new Pace()
    pace.set(1)
    pace.spend(1e9)
    const stop = new AbortController()
    const waiting = pace.earned(stop.signal)
    stop.abort()
    await expect(waiting).rejects.toThrow(StoppedError)
    await expect(pace.earned(stop.signal)).rejects.toThrow(StoppedError)
  })
})
