import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { batched } from '../../src/domain/batched.ts'
import { deferred } from '../../src/domain/deferred.ts'

describe('batched requests', () => {
  it('share one call if they arrive at the same moment, and each request gets its own result', async () => {
    const calls: number[][] = []
    const ask = batched(10, async (numbers: number[]) => {
      calls.push(numbers)
      return numbers.map((number) => number * 2)
    })
    expect(await Promise.all([1, 2, 3].map(ask))).toEqual([2, 4, 6])
    expect(calls).toEqual([[1, 2, 3]])
  })

  it('that arrive during a call go into the next call', async () => {
    const calls: number[][] = []
    const first = deferred<void>()
    const ask = batched(10, async (numbers: number[]) => {
      calls.push(numbers)
      if (calls.length === 1) await first.promise
      return numbers
    })
    const answers = [ask(1)]
    await new Promise(setImmediate)
    answers.push(ask(2), ask(3))
    await new Promise(setImmediate)
    expect(calls).toEqual([[1]])
    first.resolve()
    expect(await Promise.all(answers)).toEqual([1, 2, 3])
    expect(calls).toEqual([[1], [2, 3]])
  })

  it('reject together if their call fails, and requests of other calls do not reject', async () => {
    const ask = batched(2, async (numbers: number[]) => {
      if (numbers.includes(1)) throw new Error('no 1')
      return numbers
    })
    const results = await Promise.allSettled([1, 2, 3].map(ask))
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled'])
    expect(await ask(4)).toBe(4)
  })

  it('property: each gets one result, and no call is larger than the limit', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(fc.nat(), { maxLength: 20 })),
        fc.integer({ min: 1, max: 7 }),
        async (rounds, max) => {
          const asked: number[] = []
          const ask = batched(max, async (numbers: number[]) => {
            expect(numbers.length).toBeLessThanOrEqual(max)
            asked.push(...numbers)
            await null
            return numbers.map((number) => -number)
          })
          const answers: Promise<number>[] = []
          for (const round of rounds) {
            answers.push(...round.map(ask))
            await new Promise(setImmediate)
          }
          expect(await Promise.all(answers)).toEqual(rounds.flat().map((number) => -number))
          expect(asked).toEqual(rounds.flat())
        },
      ),
      { numRuns: 50 },
    )
  })
})
