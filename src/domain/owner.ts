/**
 * The owner of a claim (a partition, a segment, the coordinator role): an instance and the epoch of its lease. The
 * epoch rises with every lease term, so claims of an expired term are distinct from those of the next one.
 */
export type OwnerToken = string

export function ownerToken(id: string, epoch: number): OwnerToken {
  return `${id}#${epoch}`
}

export function parseOwner(token: OwnerToken): { id: string; epoch: number } {
  const at = token.lastIndexOf('#')
  return { id: token.slice(0, at), epoch: Number(token.slice(at + 1)) }
}

/** The part of an instance's lease that other instances read. */
export interface LeaseView {
  /** mongosyncID. */
  id: string
  epoch: number
  /** The writes of every term before this epoch have ended. */
  drained: number
  /** The stored value, which changes with each renewal. */
  expiresAt: Date
  /** The observer has observed no renewal for a lease duration, or the lease was released. */
  expired: boolean
  incarnation: string
  /** Earlier incarnations whose writes may not have ended. */
  predecessors: string[]
  /**
   * The sessions in which writes of this incarnation and of its predecessors may still be in progress. Null on a
   * sharded cluster and for earlier releases.
   */
  sessions: { base: string; count: number } | null
  /**
   * Another instance ended this term. The eviction may be incomplete, because the instance that began it may have
   * failed.
   */
  evicted: boolean
  /** False while the instance is paused: it keeps its claims and gets no new ones. */
  takesWork: boolean
  /** The instance is neither paused nor failed, so it is preferred as coordinator. */
  atWork: boolean
}

/**
 * True if the owner's term has certainly expired, so that its claims can be taken over. An owner without a lease is
 * alive: leases are never removed, so it has registered since the leases were read.
 */
export function isExpired(token: OwnerToken, leases: readonly LeaseView[]): boolean {
  const { id, epoch } = parseOwner(token)
  const lease = leases.find((one) => one.id === id)
  return lease !== undefined && lease.drained > epoch
}
