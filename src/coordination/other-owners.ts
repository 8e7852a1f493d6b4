import { isExpired, type OwnerToken, parseOwner } from '../domain/owner.ts'
import type { Ownership } from './ownership-store.ts'

/** Decides by one read of the ownership. An owner whose lease term has expired counts as none. */

interface Instance {
  /** mongosyncID of this instance. */
  id: string
  /** Number of partitions of the sync. */
  partitions: number
}

/** True when every partition is owned by other instances whose lease terms have not expired. */
export function haveOthersAll({ claims, leases }: Readonly<Ownership>, { id, partitions }: Instance): boolean {
  const isOthers = (partition: number): boolean => {
    const owner = claims.get(partition)?.owner
    return !!owner && !isExpired(owner, leases) && parseOwner(owner).id !== id
  }
  return Array.from({ length: partitions }, (_, partition) => partition).every(isOthers)
}

/** Returns the mongosyncIDs of the other instances that own partitions, in order. */
export function otherOwners({ claims, leases }: Readonly<Ownership>, { id }: Pick<Instance, 'id'>): string[] {
  const owners = [...claims].flatMap(([key, { owner }]): OwnerToken[] =>
    key === 'coordinator' || !owner ? [] : [owner],
  )
  const ids = new Set(owners.filter((owner) => !isExpired(owner, leases)).map((owner) => parseOwner(owner).id))
  ids.delete(id)
  return [...ids].sort()
}
