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
        expect(restMS(level, tookMS)).toBeLessThanOrEqual(restMS(milder, tookMS))
      }
    }),
  )
})

test('batches of a low level grow with the round trip', () => {
  expect(batchBytesOf(1, 5)).toBe(batchBytesOf(1, 0))
  expect(batchBytesOf(1, 60)).toBe(3 * batchBytesOf(1, 0))
})
