import { describe, expect, it } from 'vitest'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { Slots } from '../../src/throttle/slots.ts'

const { signal: never } = new AbortController()
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Work that holds its slot until it is told to end. */
function holder(slots: Slots, begun: number[], signal = never) {
  return (name: number) => {
    const end = deferred<void>()
    const run = slots.run(signal, async () => {
      begun.push(name)
      await end.promise
    })
    run.catch(() => {})
    return { end: () => end.resolve(), run }
  }
}

describe('slots', () => {
  it('are taken first come, first served', async () => {
    const begun: number[] = []
    const hold = holder(new Slots(() => 2), begun)
    const all = [1, 2, 3, 4].map(hold)
    await settled()
    expect(begun).toEqual([1, 2])
    all[1]?.end()
    await settled()
    expect(begun).toEqual([1, 2, 3])
    for (const one of all) one.end()
    await Promise.all(all.map(({ run }) => run))
    expect(begun).toEqual([1, 2, 3, 4])
  })

  it('may become more and fewer while some wait', async () => {
    const begun: number[] = []
    let limit = 1
    const slots = new Slots(() => limit)
    const all = [1, 2, 3, 4, 5].map(holder(slots, begun))
    limit = 3
    slots.changed()
    await settled()
    expect(begun).toEqual([1, 2, 3])
    limit = 1
    slots.changed()
    all[0]?.end()
    all[1]?.end()
    await settled()
    expect(begun).toEqual([1, 2, 3])
    all[2]?.end()
    await settled()
    expect(begun).toEqual([1, 2, 3, 4])
    for (const one of all) one.end()
    await Promise.all(all.map(({ run }) => run))
  })

  it('are free again when the work in them fails', async () => {
    const slots = new Slots(() => 1)
    const failing = slots.run(never, () => Promise.reject(new Error('of this work')))
    await expect(failing).rejects.toThrow('of this work')
    expect(await slots.run(never, async () => 7)).toBe(7)
  })

  it('are waited for no longer when stopped, and no other waiter loses a turn by that', async () => {
    const begun: number[] = []
    const slots = new Slots(() => 1)
    const stop = new AbortController()
    const first = holder(slots, begun)(1)
    const second = holder(slots, begun, stop.signal)(2)
    const third = holder(slots, begun)(3)
    await settled()
    stop.abort()
    await expect(second.run).rejects.toThrow(StoppedError)
    first.end()
    await settled()
    expect(begun).toEqual([1, 3])
    third.end()
    await third.run
    await expect(slots.run(stop.signal, async () => 1)).rejects.toThrow(StoppedError)
  })

  it('do not lose a turn to one that was woken and stopped at the same moment', async () => {
    const begun: number[] = []
    let limit = 1
    const slots = new Slots(() => limit)
    const stop = new AbortController()
    const first = holder(slots, begun)(1)
    const second = holder(slots, begun, stop.signal)(2)
    const third = holder(slots, begun)(3)
    await settled()
    limit = 2
    slots.changed()
    stop.abort()
    await settled()
    await expect(second.run).rejects.toThrow(StoppedError)
    expect(begun).toEqual([1, 3])
    for (const one of [first, third]) one.end()
    await Promise.all([first.run, third.run])
  })
})
