import fc from 'fast-check'
import { expect, it } from 'vitest'
import { concurrencyMax } from '../../src/domain/limits.ts'
import { bytesAhead, readAhead } from '../../src/verify/read-ahead.ts'

const mebibyte = 1024 * 1024
const memoryMax = 64 * mebibyte

const roundTrip = fc.double({ min: 0, max: 10_000, noNaN: true })
const rangesMax = fc.integer({ min: 1, max: concurrencyMax })

it('reads two ranges at a time in batches of 2 MiB from nearby clusters, and one range at load level 1', () => {
  expect(readAhead(0.2, 4)).toEqual({ ranges: 2, batchBytes: 2 * mebibyte })
  expect(readAhead(0.2, 1)).toEqual({ ranges: 1, batchBytes: 2 * mebibyte })
})

it('reads as many ranges as the load level allows over distance, in larger batches', () => {
  expect(readAhead(50, 4)).toEqual({ ranges: 4, batchBytes: 2.5 * mebibyte })
  expect(readAhead(150, 4)).toEqual({ ranges: 4, batchBytes: 4 * mebibyte })
  expect(readAhead(150, 1)).toEqual({ ranges: 1, batchBytes: 8 * mebibyte })
})

it('never reads more ranges than allowed, and never keeps more than 64 MiB in memory', () => {
  fc.assert(
    fc.property(roundTrip, rangesMax, (roundTripMS, most) => {
      const ahead = readAhead(roundTripMS, most)
      expect(ahead.ranges).toBeGreaterThanOrEqual(1)
      expect(ahead.ranges).toBeLessThanOrEqual(most)
      expect(ahead.batchBytes).toBeGreaterThanOrEqual(2 * mebibyte)
      expect(bytesAhead(ahead)).toBeLessThanOrEqual(memoryMax)
    }),
  )
})

it('reads at least as many bytes ahead at a longer distance and when more ranges are allowed', () => {
  fc.assert(
    fc.property(roundTrip, roundTrip, rangesMax, rangesMax, (one, other, most, more) => {
      const [near, far] = [Math.min(one, other), Math.max(one, other)]
      const [few, many] = [Math.min(most, more), Math.max(most, more)]
      const inFlight = (roundTripMS: number, allowed: number): number => {
        const { ranges, batchBytes } = readAhead(roundTripMS, allowed)
        return ranges * batchBytes
      }
      expect(inFlight(far, few)).toBeGreaterThanOrEqual(inFlight(near, few) - few)
      expect(inFlight(near, many)).toBeGreaterThanOrEqual(inFlight(near, few) - many)
    }),
  )
})

/**
 * Models the throughput of the scan over a link, in bytes per millisecond. Each range has one batch of each side in
 * flight, and a batch arrives after one round trip. The throughput is the lowest of three rates: that of the link, that
 * of the comparison, and the bytes in flight per round trip.
 */
function throughput(roundTripMS: number, linkBytesPerMS: number, ranges: number, batchBytes: number): number {
  const inFlight = ranges * batchBytes
  const comparedPerMS = (200 * mebibyte) / 1_000
  return Math.min(linkBytesPerMS, comparedPerMS, inFlight / Math.max(roundTripMS, 1))
}

it('reaches nine tenths of the throughput that the link or the memory allows, at load level 3', () => {
  const bandwidth = fc.double({ min: 1_000, max: 1_000_000, noNaN: true })
  fc.assert(
    fc.property(fc.double({ min: 0, max: 300, noNaN: true }), bandwidth, (roundTripMS, linkBytesPerMS) => {
      const { ranges, batchBytes } = readAhead(roundTripMS, 4)
      const best = throughput(roundTripMS, linkBytesPerMS, 4, memoryMax / 4 / 4)
      expect(throughput(roundTripMS, linkBytesPerMS, ranges, batchBytes)).toBeGreaterThanOrEqual(0.9 * best)
    }),
  )
})
