import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isExpired, type LeaseView, ownerToken, parseOwner } from '../../src/domain/owner.ts'

const lease = (id: string, epoch: number, drained: number, expired = false): LeaseView => ({
  id,
  epoch,
  drained,
  expiresAt: new Date(epoch),
  expired,
  incarnation: 'x',
  predecessors: [],
  sessions: null,
  takesWork: true,
  stoppedFor: 0,
  atWork: true,
  evicted: false,
})

describe('an owner', () => {
  it('property: is parsed from its token, whatever characters its id contains', () => {
    const ids = fc.oneof(fc.string(), fc.constantFrom('#', 'a#1', 'a#', '#7', 'ä 😀'))
    fc.assert(
      fc.property(ids, fc.nat(), (id, epoch) => {
        expect(parseOwner(ownerToken(id, epoch))).toEqual({ id, epoch })
      }),
    )
  })

  it('is not expired while its term is not drained, even if its lease has expired', () => {
    expect(isExpired('a#3', [lease('a', 3, 3)])).toBe(false)
    expect(isExpired('a#3', [lease('a', 3, 3, true)])).toBe(false)
  })

  it('is expired only when the writes of its term are drained, both after an eviction and in the next term of the same instance', () => {
    expect(isExpired('a#3', [lease('a', 4, 3, true)])).toBe(false)
    expect(isExpired('a#3', [lease('a', 4, 3)])).toBe(false)
    expect(isExpired('a#3', [lease('a', 4, 4)])).toBe(true)
    expect(isExpired('a#3', [lease('a', 4, 5, true)])).toBe(true)
    expect(isExpired('a#5', [lease('a', 5, 5)])).toBe(false)
  })

  it('is expired when its lease was released', () => {
    expect(isExpired('a#3', [lease('a', 3, 4, true)])).toBe(true)
  })

  it('is not expired while its lease is unknown', () => {
    expect(isExpired('a#3', [])).toBe(false)
    expect(isExpired('a#3', [lease('b', 1, 1)])).toBe(false)
  })

  it('is not mistaken for another instance whose id equals the token of this owner', () => {
    expect(isExpired('a#3', [lease('a#3', 9, 9), lease('a', 3, 3)])).toBe(false)
  })
})
