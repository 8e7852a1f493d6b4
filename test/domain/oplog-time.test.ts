import { expect, test } from 'vitest'
import { describeOplogTime } from '../../src/domain/oplog-time.ts'

test.each([
  [0, 'less than 15 minutes'],
  [900, '15 minutes'],
  [3_599, '59 minutes'],
  [3_600, '1 hour'],
  [12 * 3_600 + 5, '12 hours'],
  [72 * 3_600 + 1, 'more than 72 hours'],
])('%i seconds are described as %s', (seconds, text) => {
  expect(describeOplogTime(seconds)).toBe(text)
})
