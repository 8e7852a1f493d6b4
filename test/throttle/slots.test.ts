import { describe, expect, it } from 'vitest'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { Slots } from '../../src/throttle/slots.ts'

const { signal: never } = new AbortController()
const continuationsDone = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Starts functions that hold a slot until `end` is called. */
function holder(slots: Slots, started: number[], signal = never) {
  return (name: number) => {
    const end = deferred<void>()
    const run = slots.run(signal, async () => {
      started.push(name)
      await end.promise
    })
    run.catch(() => {})
    return { end: () => end.resolve(), run }
  }
}

describe('slots', () => {
  it('are assigned in the order of requests', async () => {
    const started: number[] = []
    const hold = holder(new Slots(() => 2), started)
    const all = [1, 2, 3, 4].map(hold)
    await continuationsDone()
    expect(started).toEqual([1, 2])
    all[1]?.end()
    await continuationsDone()
    expect(started).toEqual([1, 2, 3])
    for (const one of all) one.end()
    await Promise.all(all.map(({ run }) => run))
    expect(started).toEqual([1, 2, 3, 4])
  })

  it('can change in number while callers wait', async () => {
    const started: number[] = []
    let limit = 1
    const slots = new Slots(() => limit)
    const all = [1, 2, 3, 4, 5].map(holder(slots, started))
    limit = 3
    slots.changed()
    await continuationsDone()
    expect(started).toEqual([1, 2, 3])
    limit = 1
    slots.changed()
    all[0]?.end()
    all[1]?.end()
    await continuationsDone()
    expect(started).toEqual([1, 2, 3])
    all[2]?.end()
    await continuationsDone()
    expect(started).toEqual([1, 2, 3, 4])
    for (const one of all) one.end()
    await Promise.all(all.map(({ run }) => run))
  })

  it('are free again when the function that holds them fails', async () => {
    const slots = new Slots(() => 1)
    const failing = slots.run(never, () => Promise.reject(new Error('of this function')))
    await expect(failing).rejects.toThrow('of this function')
    expect(await slots.run(never, async () => 7)).toBe(7)
  })

  it('end the wait of a caller that is stopped, and no other caller loses its turn', async () => {
    const started: number[] = []
    const slots = new Slots(() => 1)
    const stop = new AbortController()
    const first = holder(slots, started)(1)
    const second = holder(slots, started, stop.signal)(2)
    const third = holder(slots, started)(3)
    await continuationsDone()
    stop.abort()
    await expect(second.run).rejects.toThrow(StoppedError)
    first.end()
    await continuationsDone()
    expect(started).toEqual([1, 3])
    third.end()
    await third.run
    await expect(slots.run(stop.signal, async () => 1)).rejects.toThrow(StoppedError)
  })

  it('lose no turn when a caller gets a slot and is stopped at the same time', async () => {
    const started: number[] = []
    let limit = 1
    const slots = new Slots(() => limit)
    const stop = new AbortController()
    const first = holder(slots, started)(1)
    const second = holder(slots, started, stop.signal)(2)
    const third = holder(slots, started)(3)
    await continuationsDone()
    limit = 2
    slots.changed()
    stop.abort()
    await continuationsDone()
    await expect(second.run).rejects.toThrow(StoppedError)
    expect(started).toEqual([1, 3])
    for (const one of [first, third]) one.end()
    await Promise.all([first.run, third.run])
  })
})
