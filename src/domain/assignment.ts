import type { OwnerToken } from './owner.ts'

/**
 * Returns the instance that should own each partition. The function is pure, so all instances that read the same inputs
 * compute the same result without exchanging messages. If their inputs differ, the compare-and-set of the claim
 * decides.
 *
 * Shares differ by at most one. As few partitions as possible change owners: an owner keeps its lowest partitions up
 * to its share, and the larger shares go to the members that already own the most. An owner that is not a member keeps
 * what it owns: it is paused, or its lease has expired but its writes may not have ended.
 * @param owners the current owner of each partition; null if the partition is free
 * @param members the live instances that accept work
 */
export function wantedOwners(
  owners: readonly (OwnerToken | null)[],
  members: readonly OwnerToken[],
): (OwnerToken | null)[] {
  const wanted = [...owners]
  if (members.length === 0) return wanted
  const ownedBy = new Map(members.map((member) => [member, owners.filter((owner) => owner === member).length]))
  const movable = owners.filter((owner) => owner === null || ownedBy.has(owner)).length
  const sorted = [...members].sort(
    (one, other) => (ownedBy.get(other) ?? 0) - (ownedBy.get(one) ?? 0) || (one < other ? -1 : 1),
  )
  const remainingShares = new Map(
    sorted.map((member, position) => [
      member,
      Math.floor(movable / members.length) + (position < movable % members.length ? 1 : 0),
    ]),
  )
  const remaining = (member: OwnerToken): number => remainingShares.get(member) ?? 0
  const take = (member: OwnerToken): void => void remainingShares.set(member, remaining(member) - 1)
  const pool: number[] = []
  for (const [partition, owner] of owners.entries()) {
    if (owner !== null && !ownedBy.has(owner)) continue
    if (owner !== null && remaining(owner) > 0) take(owner)
    else pool.push(partition)
  }
  for (const partition of pool) {
    const member = sorted.find((one) => remaining(one) > 0) as OwnerToken
    take(member)
    wanted[partition] = member
  }
  return wanted
}
