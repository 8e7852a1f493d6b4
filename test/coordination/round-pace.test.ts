import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { type Ownership, unread } from '../../src/coordination/ownership-store.ts'
import { RoundPace } from '../../src/coordination/round-pace.ts'
import type { LeaseView } from '../../src/domain/owner.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
afterEach(() => void vi.useRealTimers())

const quickMS = 400
const restingMS = 1_000

function lease(id: string, renewal = 1): LeaseView {
  return {
    ...{ id, epoch: 1, drained: 1, expiresAt: new Date(renewal), expired: false, incarnation: `of ${id}` },
    ...{ predecessors: [], sessions: null, evicted: false, takesWork: true, atWork: true, stoppedFor: 0 },
  }
}

const owned = (leases: LeaseView[], changed: Partial<Ownership> = {}): Ownership => ({
  ...unread(),
  leases,
  ...changed,
})

/** Lets a pace observe the same for so long that it rests. */
function resting(pace: RoundPace, ownership: Ownership): void {
  pace.observed(ownership)
  vi.advanceTimersByTime(5_001)
  pace.observed(ownership)
}

it('rounds rest when nothing has changed for five seconds', () => {
  const pace = new RoundPace('a', true)
  const alone = owned([lease('a')])
  pace.observed(alone)
  expect(pace.pauseMS(true)).toBe(quickMS)
  vi.advanceTimersByTime(5_001)
  pace.observed(owned([lease('a', 2)]))
  expect(pace.pauseMS(true)).toBe(restingMS)
  expect(pace.pauseMS(false)).toBe(quickMS)
  pace.active()
  expect(pace.pauseMS(true)).toBe(quickMS)
})

it('each change that a round reads makes the next rounds quick', () => {
  const claim = { owner: 'a#1', epoch: 1, last: { owner: 'a#1', since: new Date(0) } }
  const changes: Ownership[] = [
    owned([lease('a'), lease('b')]),
    owned([{ ...lease('a'), takesWork: false }]),
    owned([lease('a')], { revision: 1 }),
    owned([lease('a')], { claims: new Map([[0, claim]]) }),
    owned([lease('a')], { hasOpenBarrier: true }),
  ]
  for (const change of changes) {
    const pace = new RoundPace('a', true)
    resting(pace, owned([lease('a')]))
    expect(pace.pauseMS(true)).toBe(restingMS)
    pace.observed(change)
    expect(pace.pauseMS(true)).toBe(quickMS)
  }
})

it('rounds are quick from before a lease that is not renewed can expire', () => {
  const pace = new RoundPace('a', true)
  const renewed = (renewal: number) => owned([lease('a'), lease('b', renewal)])
  pace.observed(renewed(1))
  for (let renewal = 2; renewal < 5; renewal++) {
    vi.advanceTimersByTime(2_500)
    pace.observed(renewed(renewal))
  }
  expect(pace.pauseMS(true)).toBe(restingMS)
  vi.advanceTimersByTime(5_001)
  pace.observed(renewed(4))
  expect(pace.pauseMS(true)).toBe(quickMS)
  pace.observed(renewed(5))
  expect(pace.pauseMS(true)).toBe(restingMS)
})

it('if heartbeats show which instances are alive, rounds rest only while there is no other instance', () => {
  const pace = new RoundPace('a', false)
  resting(pace, owned([lease('a')]))
  expect(pace.pauseMS(true)).toBe(restingMS)
  resting(pace, owned([lease('a'), lease('b')]))
  expect(pace.pauseMS(true)).toBe(quickMS)
})

it('if heartbeats show which instances are alive, rounds rest again when the other one has ended for good', () => {
  const pace = new RoundPace('a', false)
  resting(pace, owned([lease('a'), { ...lease('b'), expired: true }]))
  expect(pace.pauseMS(true)).toBe(quickMS)
  resting(pace, owned([lease('a'), { ...lease('b'), expired: true, evicted: true, drained: 2 }]))
  expect(pace.pauseMS(true)).toBe(restingMS)
})
