import { describe, expect, it } from 'vitest'
import { deferred } from '../../src/domain/deferred.ts'
import { elastically } from '../../src/domain/elastically.ts'

/** Steps that end when they are told to, a width that may be changed, and how many run. */
function stage(width: number, steps: number) {
  const running: ReturnType<typeof deferred<void>>[] = []
  let left = steps
  let changed = (): void => {}
  const parts = {
    width,
    most: 0,
    running,
    setWidth(next: number): void {
      parts.width = next
      changed()
    },
    async endOne(): Promise<void> {
      running.shift()?.resolve()
      await new Promise((resolve) => setImmediate(resolve))
    },
    run: (): Promise<void> =>
      elastically(
        () => parts.width,
        (listener) => {
          changed = listener
          return () => {
            changed = () => {}
          }
        },
        async () => {
          if (left === 0) return false
          left -= 1
          const end = deferred<void>()
          running.push(end)
          parts.most = Math.max(parts.most, running.length)
          await end.promise
          return true
        },
      ),
  }
  return parts
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('work of an elastic width', () => {
  it('is done to its end, as many at a time as allowed', async () => {
    const work = stage(3, 10)
    const run = work.run()
    for (let step = 0; step < 10; step += 1) await work.endOne()
    await run
    expect(work.most).toBe(3)
  })

  it('widens at once, and narrows as steps end', async () => {
    const work = stage(1, 100)
    const run = work.run()
    await settled()
    expect(work.running).toHaveLength(1)
    work.setWidth(4)
    await settled()
    expect(work.running).toHaveLength(4)
    work.setWidth(2)
    await work.endOne()
    expect(work.running).toHaveLength(3)
    await work.endOne()
    await work.endOne()
    expect(work.running).toHaveLength(2)
    while (work.running.length > 0) await work.endOne()
    await run
  })

  it('begins nothing after a failure, awaits what is under way, and throws the first', async () => {
    const slow = deferred<boolean>()
    let begun = 0
    let ended = false
    const run = elastically(
      () => 2,
      () => () => {},
      () => {
        begun += 1
        return begun === 1 ? slow.promise : Promise.reject(new Error(`failure of ${begun}`))
      },
    ).finally(() => {
      ended = true
    })
    const failure = run.catch((error: Error) => error.message)
    await settled()
    expect(ended).toBe(false)
    slow.resolve(true)
    expect(await failure).toBe('failure of 2')
    expect(begun).toBe(2)
  })

  it('of nothing ends at once', async () => {
    await elastically(
      () => 4,
      () => () => {},
      async () => false,
    )
  })
})
