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

test('what stays the same, or falls, is flat, whatever the first cycle was', () => {
  fc.assert(
    fc.property(figures, (values) => {
      const falling = [...values].sort((one, other) => other - one)
      expect(judgeFlat([1e9, ...falling], 0)).toMatchObject({ flat: true })
      expect(judgeFlat([0, ...falling], 0)).toMatchObject({ flat: true })
    }),
  )
})

test('what doubles from third to third is not flat, and is within a slack as large as it grew', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 10, max: 1_000 }), (third, from) => {
      const grown = [1, 2, 4].flatMap((times) => Array.from({ length: third }, () => from * times))
      expect(judgeFlat([from, ...grown], 0)).toMatchObject({ first: from, last: 4 * from, flat: false })
      expect(judgeFlat([from, ...grown], 3 * from)).toMatchObject({ flat: true })
    }),
  )
})

test('one unusual cycle decides nothing', () => {
  const quiet = Array.from({ length: 10 }, () => 100)
  expect(judgeFlat([...quiet, 1_000], 0)).toMatchObject({ flat: true })
})

test('fewer than three legs after the first are not judged', () => {
  expect(judgeFlat([1, 2, 3], 0)).toBeNull()
  expect(judgeFlat([1, 2, 3, 4], 0)).not.toBeNull()
})
