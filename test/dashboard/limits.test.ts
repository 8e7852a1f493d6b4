import { expect, test } from 'vitest'
import { backOffOf, limitsOf } from '../../src/dashboard/limits.js'

/** Tests the texts of the dashboard about limits and back-off. */

const limits = { bytesPerSecond: null, readConcurrency: 1, writeConcurrency: 4 }
const backedOff = { reason: 'flow control delays writes', since: '2026-01-02T03:04:05.000Z', writeConcurrency: 2 }

test('limits and a back-off are shown, and a dash while only --loadLevel applies', () => {
  expect(limitsOf(undefined)).toBe('–')
  expect(limitsOf(limits)).toBe('1 read, 4 writes at a time')
  expect(limitsOf({ ...limits, bytesPerSecond: 2_000_000, readConcurrency: 2, writeConcurrency: 1 })).toBe(
    '2.0 MB/s, 2 reads, 1 write at a time',
  )
  expect(limitsOf({ ...limits, backedOff })).toBe('1 read, 2 of 4 writes at a time')
  expect(backOffOf(limits)).toBeNull()
  expect(backOffOf({ ...limits, backedOff })).toBe(
    'writing more slowly since 2026-01-02T03:04:05.000Z: flow control delays writes',
  )
})
