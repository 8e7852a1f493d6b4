import { expect, test } from 'vitest'
import { AppliedPace } from '../../src/session/applied-pace.ts'

/** @param applied the applied times, of which one is sampled each second */
function paceOf(applied: number[], samplesMax = 10, spanMinMS = 0): number | null {
  const pace = new AppliedPace(samplesMax, spanMinMS)
  for (const [at, time] of applied.entries()) pace.add(at * 1_000, time)
  return pace.perSecond
}

test('the speed covers the samples that are kept', () => {
  expect(paceOf([0, 2, 4, 6])).toBe(2)
  expect(paceOf([0, 100, 101, 102], 3)).toBe(1)
})

test('the speed is unknown before the samples span the required time', () => {
  expect(paceOf([0])).toBeNull()
  expect(paceOf([0, 2, 4], 10, 3_000)).toBeNull()
  expect(paceOf([0, 2, 4, 6], 10, 3_000)).toBe(2)
})

test('the speed is unknown after the applied time went backwards, and after a reset', () => {
  expect(paceOf([9, 3])).toBeNull()
  const pace = new AppliedPace(10)
  pace.add(0, 0)
  pace.reset()
  pace.add(1_000, 5)
  expect(pace.perSecond).toBeNull()
})
