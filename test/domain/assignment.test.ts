import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { wantedOwners } from '../../src/domain/assignment.ts'
import type { OwnerToken } from '../../src/domain/owner.ts'

interface Situation {
  owners: (OwnerToken | null)[]
  members: OwnerToken[]
}

const names = ['a#1', 'b#1', 'b#3', 'c#2', 'd#1', 'e#10']

/** Up to six instances, some of whom take work, and partitions owned by any of them, or by nobody. */
const situations: fc.Arbitrary<Situation> = fc.record({
  owners: fc.array(fc.constantFrom(null, ...names), { maxLength: 24 }),
  members: fc.subarray(names),
})
const situationsWithMembers = situations.filter(({ members }) => members.length > 0)

const sharesOf = ({ members }: Situation, owners: readonly (OwnerToken | null)[]): number[] =>
  members.map((member) => owners.filter((owner) => owner === member).length)

const holds = (what: fc.Arbitrary<Situation>, rule: (situation: Situation) => void): void =>
  fc.assert(fc.property(what, rule), { numRuns: 500 })

describe('who should own what', () => {
  it('is somebody, for every partition, as soon as anybody takes work', () => {
    holds(situationsWithMembers, ({ owners, members }) => {
      const wanted = wantedOwners(owners, members)
      expect(wanted).toHaveLength(owners.length)
      expect(wanted).not.toContain(null)
    })
  })

  it('gives shares that differ by at most one', () => {
    holds(situationsWithMembers, (situation) => {
      const shares = sharesOf(situation, wantedOwners(situation.owners, situation.members))
      expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1)
    })
  })

  it('leaves those who take no work what they have, and gives them nothing', () => {
    holds(situations, ({ owners, members }) => {
      const wanted = wantedOwners(owners, members)
      for (const [partition, owner] of owners.entries()) {
        const next = wanted[partition] ?? null
        if (owner !== null && !members.includes(owner)) expect(next).toBe(owner)
        else if (next !== null) expect(members).toContain(next)
      }
    })
  })

  it('moves no more than equal shares need', () => {
    holds(situationsWithMembers, (situation) => {
      const { owners, members } = situation
      const wanted = wantedOwners(owners, members)
      const before = sharesOf(situation, owners)
      const movable = owners.filter((owner) => owner === null || members.includes(owner)).length
      const [small, larger] = [Math.floor(movable / members.length), movable % members.length]
      // By hand: whoever has more than a share gives the rest away, and the larger shares fall to those who can use them.
      const keptAtBest = [...before]
        .sort((one, other) => other - one)
        .reduce((kept, has, rank) => kept + Math.min(has, small + (rank < larger ? 1 : 0)), 0)
      const kept = owners.filter((owner, at) => owner !== null && members.includes(owner) && wanted[at] === owner)
      expect(kept).toHaveLength(keptAtBest)
      for (const [index, member] of members.entries()) {
        const gains = wanted.filter((owner, at) => owner === member && owners[at] !== member).length
        const gives = owners.filter((owner, at) => owner === member && wanted[at] !== member).length
        expect(gains === 0 || gives === 0).toBe(true)
        expect(before[index]).toBeGreaterThanOrEqual(gives)
      }
    })
  })

  it('is the same for everybody who sees the same, in whatever order', () => {
    const shuffled = situations.chain((situation) =>
      fc.tuple(fc.constant(situation), fc.shuffledSubarray(situation.members, { minLength: situation.members.length })),
    )
    fc.assert(
      fc.property(shuffled, ([{ owners, members }, again]) => {
        expect(wantedOwners(owners, again)).toEqual(wantedOwners(owners, members))
      }),
      { numRuns: 500 },
    )
  })

  it('is at rest once it is so', () => {
    holds(situations, ({ owners, members }) => {
      const wanted = wantedOwners(owners, members)
      expect(wantedOwners(wanted, members)).toEqual(wanted)
    })
  })

  it('changes nothing while nobody takes work, and what it is given in no case', () => {
    holds(situations, ({ owners, members }) => {
      expect(wantedOwners(owners, [])).toEqual(owners)
      const [frozenOwners, frozenMembers] = [Object.freeze([...owners]), Object.freeze([...members])]
      expect(wantedOwners(frozenOwners, frozenMembers)).toEqual(wantedOwners(owners, members))
    })
  })
})
