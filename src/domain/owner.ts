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

/** The lease of an instance, as another instance has read it. */
export interface LeaseView {
  /** mongosyncID. */
  id: string
  epoch: number
  /** The writes of every lease term with an epoch below this one have ended. */
  drained: number
  /** The stored end of the lease, which changes with each renewal. The lease does not end at this time (see `expired`). */
  expiresAt: Date
  /** True if the reader has observed no renewal for the duration of a lease, or the lease was given back. */
  expired: boolean
  /**
   * A random value that identifies the process that holds the lease. Its writes contain the value, so that other
   * instances can ask the server whether they have ended.
   */
  incarnation: string
  /** Incarnations of earlier holders whose writes may not have ended. */
  predecessors: string[]
  /**
   * The sessions in which writes of this incarnation and of its predecessors may still be in progress. Null on a
   * sharded cluster and for earlier releases.
   */
  sessions: { base: string; count: number } | null
  /**
   * True if another instance has ended this term. The eviction may be incomplete, because the instance that began it
   * may have failed.
   */
  evicted: boolean
  /**
   * False while the instance does not replicate, for example while it is paused. It then keeps its claims but gets no
   * new ones.
   */
  takesWork: boolean
  /** True if the instance is neither paused nor failed, so that it is preferred as coordinator. */
  atWork: boolean
  /**
   * The number of the last convergence for which the instance has stored, in this lease term, that all its work has
   * stopped and that the convergence may be planned; 0 if there is none.
   */
  stoppedFor: number
}

/**
 * True if the owner's lease term is over and its writes have ended (`LeaseView.drained`), so that its claims can be
 * taken over. `LeaseView.expired` does not suffice, because delayed writes of an expired term may still arrive. An
 * owner without a lease counts as alive: leases are never removed, so it took its lease after the leases were read.
 */
export function isExpired(token: OwnerToken, leases: readonly LeaseView[]): boolean {
  const { id, epoch } = parseOwner(token)
  const lease = leases.find((one) => one.id === id)
  return lease !== undefined && lease.drained > epoch
}

/** True if the lease's current term has neither expired nor been given back nor evicted. */
export function isAlive(lease: Pick<LeaseView, 'expired' | 'drained' | 'epoch'>): boolean {
  return !lease.expired && lease.drained <= lease.epoch
}
