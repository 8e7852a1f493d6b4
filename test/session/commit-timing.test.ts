import { expect, test } from 'vitest'
import { CommitTiming } from '../../src/session/commit-timing.ts'

test('a process that leaves an attempt and takes over a later one reports only the steps of the later one', () => {
  const timing = new CommitTiming()
  timing.beginAttempt('commitPoint')
  timing.beginStep('verify')
  timing.reset()
  timing.beginStep('lastCheck')
  const { steps, outageSeconds } = timing.rehearsal('equal')
  expect(steps.map(({ step }) => step)).toEqual(['lastCheck'])
  expect(outageSeconds).toBeGreaterThanOrEqual(0)
})

test('the result of an attempt contains its steps in order, and the next attempt begins without them', () => {
  const timing = new CommitTiming()
  timing.beginAttempt('commitPoint')
  timing.beginStep('verify')
  expect(timing.rehearsal('equal').steps.map(({ step }) => step)).toEqual(['commitPoint', 'verify'])
  timing.beginStep('applyEvents')
  expect(timing.rehearsal('equal').steps.map(({ step }) => step)).toEqual(['applyEvents'])
})
