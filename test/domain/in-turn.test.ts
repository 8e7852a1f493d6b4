import fc from 'fast-check'
import { expect, it } from 'vitest'
import { InTurn } from '../../src/domain/in-turn.ts'

it('works run one at a time, in the order in which they were given, whichever of them fail', async () => {
  const works = fc.array(fc.record({ turns: fc.nat({ max: 3 }), fails: fc.boolean() }), { maxLength: 8 })
  await fc.assert(
    fc.asyncProperty(works, async (given) => {
      const inTurn = new InTurn()
      const seen: string[] = []
      const runs = given.map(({ turns, fails }, index) =>
        inTurn.run(async () => {
          seen.push(`begins ${index}`)
          for (let turn = 0; turn < turns; turn++) await null
          seen.push(`ends ${index}`)
          if (fails) throw new Error(`${index}`)
          return index
        }),
      )
      const results = Promise.allSettled(runs)
      await inTurn.idle
      expect(seen).toEqual(given.flatMap((_, index) => [`begins ${index}`, `ends ${index}`]))
      const expected = given.map(({ fails }, index) => (fails ? `${index}` : index))
      expect((await results).map((one) => (one.status === 'fulfilled' ? one.value : one.reason.message))).toEqual(
        expected,
      )
    }),
  )
})
