import fc from 'fast-check'
import { expect, test } from 'vitest'
import { secondsUntilCaughtUp } from '../../bench/lag-over-time.ts'

test('a lag below a second counts as caught up', () => {
  expect(secondsUntilCaughtUp({ sentAtMS: [0, 1_000], lagsMS: [100, 900] }, 1_500)).toBe(0)
})

test('a longer lag ends when a change arrives within a second', () => {
  const observed = { sentAtMS: [0, 1_000, 2_000, 6_500], lagsMS: [100, 6_000, 5_000, 500] }
  expect(secondsUntilCaughtUp(observed, 3_000)).toBe(4)
})

test('without such a change, it is the time until the last one arrives', () => {
  expect(secondsUntilCaughtUp({ sentAtMS: [0, 1_000], lagsMS: [4_000, 3_500] }, 2_000)).toBe(2.5)
})

test('after the last change has arrived, the lag is over', () => {
  const observation = fc.record({ gapMS: fc.nat(500), lagMS: fc.nat(10_000) })
  fc.assert(
    fc.property(fc.array(observation), fc.nat(60_000), (observations, from) => {
      let at = 0
      let arrived = 0
      const sentAtMS: number[] = []
      const lagsMS: number[] = []
      for (const { gapMS, lagMS } of observations) {
        at += gapMS
        arrived = Math.max(arrived, at + lagMS)
        sentAtMS.push(at)
        lagsMS.push(arrived - at)
      }
      const seconds = secondsUntilCaughtUp({ sentAtMS, lagsMS }, from)
      expect(seconds).toBeGreaterThanOrEqual(0)
      expect(from + seconds * 1_000).toBeLessThanOrEqual(Math.max(from, arrived) + 1e-6)
    }),
  )
})
