import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { wantedOwners } from '../../src/domain/assignment.ts'
import type { OwnerToken } from '../../src/domain/owner.ts'

interface Situation {
  owners: (OwnerToken | null)[]
  members: OwnerToken[]
}

const names = ['a#1', 'b#1', 'b#3', 'c#2', 'd#1', 'e#10']

/** Generates up to six instances, some of which accept work, and partitions that belong to one of them or have no owner. */
const situations: fc.Arbitrary<Situation> = fc.record({
  owners: fc.array(fc.constantFrom(null, ...names), { maxLength: 24 }),
  members: fc.subarray(names),
})
const situationsWithMembers = situations.filter(({ members }) => members.length > 0)

const sharesOf = ({ members }: Situation, owners: readonly (OwnerToken | null)[]): number[] =>
  members.map((member) => owners.filter((owner) => owner === member).length)

const holds = (what: fc.Arbitrary<Situation>, rule: (situation: Situation) => void): void =>
  fc.assert(fc.property(what, rule), { numRuns: 500 })

describe('wantedOwners', () => {
  it('gives every partition an owner as soon as one instance accepts work', () => {
    holds(situationsWithMembers, ({ owners, members }) => {
      const wanted = wantedOwners(owners, members)
      expect(wanted).toHaveLength(owners.length)
      expect(wanted).not.toContain(null)
    })
  })

  it('gives the instances shares that differ by at most one', () => {
    holds(situationsWithMembers, (situation) => {
      const shares = sharesOf(situation, wantedOwners(situation.owners, situation.members))
      expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1)
    })
  })

  it('lets an instance that accepts no work keep its partitions, and gives it no others', () => {
    holds(situations, ({ owners, members }) => {
      const wanted = wantedOwners(owners, members)
      for (const [partition, owner] of owners.entries()) {
        const next = wanted[partition] ?? null
        if (owner !== null && !members.includes(owner)) expect(next).toBe(owner)
        else if (next !== null) expect(members).toContain(next)
      }
    })
  })

  it('moves no more partitions than equal shares require', () => {
    holds(situationsWithMembers, (situation) => {
      const { owners, members } = situation
      const wanted = wantedOwners(owners, members)
      const before = sharesOf(situation, owners)
      const movable = owners.filter((owner) => owner === null || members.includes(owner)).length
      const [small, larger] = [Math.floor(movable / members.length), movable % members.length]
      // The expected number is computed independently: an instance gives away the partitions beyond its share, and the larger
      // shares go to the instances that own the most.
      const keptAtBest = [...before]
        .sort((one, other) => other - one)
        .reduce((kept, owned, position) => kept + Math.min(owned, small + (position < larger ? 1 : 0)), 0)
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

  it('does not depend on the order of the members', () => {
    const shuffled = situations.chain((situation) =>
      fc.tuple(fc.constant(situation), fc.shuffledSubarray(situation.members, { minLength: situation.members.length })),
    )
    fc.assert(
      fc.property(shuffled, ([{ owners, members }, reordered]) => {
        expect(wantedOwners(owners, reordered)).toEqual(wantedOwners(owners, members))
      }),
      { numRuns: 500 },
    )
  })

  it('changes nothing when it is applied to its own result', () => {
    holds(situations, ({ owners, members }) => {
      const wanted = wantedOwners(owners, members)
      expect(wantedOwners(wanted, members)).toEqual(wanted)
    })
  })

  it('changes no owner while no instance accepts work, and never modifies its arguments', () => {
    holds(situations, ({ owners, members }) => {
      expect(wantedOwners(owners, [])).toEqual(owners)
      const [frozenOwners, frozenMembers] = [Object.freeze([...owners]), Object.freeze([...members])]
      expect(wantedOwners(frozenOwners, frozenMembers)).toEqual(wantedOwners(owners, members))
    })
  })
})
