import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isExpired, type LeaseView, ownerToken, parseOwner } from '../../src/domain/owner.ts'

const lease = (id: string, epoch: number, settled: number, expired = false): LeaseView => ({
  id,
  epoch,
  drained: settled,
  expiresAt: new Date(epoch),
  expired,
  incarnation: 'x',
  predecessors: [],
  sessions: null,
  takesWork: true,
  atWork: true,
  evicted: false,
})

describe('an owner', () => {
  it('is told from its token, whatever its id is made of', () => {
    const ids = fc.oneof(fc.string(), fc.constantFrom('#', 'a#1', 'a#', '#7', 'ä 😀'))
    fc.assert(
      fc.property(ids, fc.nat(), (id, epoch) => {
        expect(parseOwner(ownerToken(id, epoch))).toEqual({ id, epoch })
      }),
    )
  })

  it('lives while its lease is the one it was, also when that has expired and nobody has buried it', () => {
    expect(isExpired('a#3', [lease('a', 3, 3)])).toBe(false)
    expect(isExpired('a#3', [lease('a', 3, 3, true)])).toBe(false)
  })

  it('is not dead for certain before the second step of its burial, or before its next life has settled', () => {
    expect(isExpired('a#3', [lease('a', 4, 3, true)])).toBe(false)
    expect(isExpired('a#3', [lease('a', 4, 3)])).toBe(false)
    expect(isExpired('a#3', [lease('a', 4, 4)])).toBe(true)
    expect(isExpired('a#3', [lease('a', 4, 5, true)])).toBe(true)
    expect(isExpired('a#5', [lease('a', 5, 5)])).toBe(false)
  })

  it('is dead when its lease was given back', () => {
    expect(isExpired('a#3', [lease('a', 3, 4, true)])).toBe(true)
  })

  it('lives when its lease is not known yet', () => {
    expect(isExpired('a#3', [])).toBe(false)
    expect(isExpired('a#3', [lease('b', 1, 1)])).toBe(false)
  })

  it('is not taken for another whose id begins alike', () => {
    expect(isExpired('a#3', [lease('a#3', 9, 9), lease('a', 3, 3)])).toBe(false)
  })
})
