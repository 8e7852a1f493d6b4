import { expect, test } from 'vitest'
import { estimateCatchUp } from '../../src/domain/catch-up.ts'

test.each([
  ['the lag and the speed of the last seconds give the estimate', 100, 3, 50],
  ['a part of a second counts as a second', 10, 4, 4],
  ['there is no estimate while the lag grows', 100, 0.5, null],
  ['there is no estimate while the lag stays the same', 100, 1, null],
  ['there is no estimate while the sync is not behind', 1, 3, null],
  ['there is no estimate before the speed is known', 100, null, null],
  ['there is no estimate while the lag is unknown', null, 3, null],
])('%s', (_what, lagSeconds, appliedPerSecond, seconds) => {
  expect(estimateCatchUp(lagSeconds, appliedPerSecond)).toBe(seconds)
})
