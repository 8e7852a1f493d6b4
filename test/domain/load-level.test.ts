import fc from 'fast-check'
import { expect, test } from 'vitest'
import { batchBytesOf, concurrencyOf, type LoadLevel, restMS } from '../../src/domain/load-level.ts'

const levels: LoadLevel[] = [1, 2, 3, 4]
const milliseconds = fc.double({ min: 0, max: 10_000, noNaN: true })

test('a higher level reads more ranges at a time, in larger batches and with less rest', () => {
  fc.assert(
    fc.property(milliseconds, milliseconds, (tookMS, roundTripMS) => {
      for (const [index, level] of levels.slice(1).entries()) {
        const milder = levels[index] as LoadLevel
        expect(concurrencyOf(level)).toBeGreaterThan(concurrencyOf(milder))
        expect(batchBytesOf(level, roundTripMS)).toBeGreaterThanOrEqual(batchBytesOf(milder, roundTripMS))
        expect(restMS(level, tookMS, roundTripMS)).toBeLessThanOrEqual(restMS(milder, tookMS, roundTripMS))
      }
    }),
  )
})

test('a rest is never negative, and the round trip needs none', () => {
  fc.assert(
    fc.property(fc.constantFrom(...levels), milliseconds, milliseconds, (level, workMS, roundTripMS) => {
      expect(restMS(level, roundTripMS / 2, roundTripMS)).toBe(0)
      expect(restMS(level, workMS + roundTripMS, roundTripMS)).toBeCloseTo(restMS(level, workMS, 0), 6)
    }),
  )
})

test('batches of a low level grow with the round trip', () => {
  expect(batchBytesOf(1, 50)).toBeGreaterThan(10 * batchBytesOf(1, 0))
})
