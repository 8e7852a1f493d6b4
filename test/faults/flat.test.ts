import fc from 'fast-check'
import { expect, test } from 'vitest'
import { judgeFlat, median } from './flat.ts'

const figures = fc.array(fc.double({ min: 1, max: 1e6, noNaN: true }), { minLength: 4, maxLength: 60 })

test('a median has as many values above it as below', () => {
  fc.assert(
    fc.property(fc.array(fc.integer(), { minLength: 1 }), (values) => {
      const middle = median(values)
      const below = values.filter((value) => value < middle).length
      const above = values.filter((value) => value > middle).length
      expect(Math.max(below, above)).toBeLessThanOrEqual(values.length / 2)
    }),
  )
})

test('values that stay the same or fall are flat, whatever the first value was', () => {
  fc.assert(
    fc.property(figures, (values) => {
      const falling = [...values].sort((left, right) => right - left)
      expect(judgeFlat([1e9, ...falling], 0)).toMatchObject({ flat: true })
      expect(judgeFlat([0, ...falling], 0)).toMatchObject({ flat: true })
    }),
  )
})

test('values that double from third to third are not flat, unless the slack covers the growth', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 10, max: 1_000 }), (third, from) => {
      const grown = [1, 2, 4].flatMap((times) => Array.from({ length: third }, () => from * times))
      expect(judgeFlat([from, ...grown], 0)).toMatchObject({ first: from, last: 4 * from, flat: false })
      expect(judgeFlat([from, ...grown], 3 * from)).toMatchObject({ flat: true })
    }),
  )
})

test('a smaller factor allows less growth', () => {
  const grown = [100, 100, 105, 112]
  expect(judgeFlat(grown, 0)).toMatchObject({ flat: true })
  expect(judgeFlat(grown, 0, 1.1)).toMatchObject({ flat: false })
})

test('one unusual value does not change the judgement', () => {
  const quiet = Array.from({ length: 10 }, () => 100)
  expect(judgeFlat([...quiet, 1_000], 0)).toMatchObject({ flat: true })
})

test('fewer than three values after the first are not judged', () => {
  expect(judgeFlat([1, 2, 3], 0)).toBeNull()
  expect(judgeFlat([1, 2, 3, 4], 0)).not.toBeNull()
})
