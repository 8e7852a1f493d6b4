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
  /** The reader has seen no renewal for a lease duration, or the lease was released. */
  expired: boolean
  /**
   * Random value that identifies the process which holds the lease. Its writes carry the value, so that the server can
   * be asked whether they have ended.
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
   * Another instance ended this term. The eviction may be incomplete, because the instance that began it may have
   * failed.
   */
  evicted: boolean
  /** False while the instance is paused: it keeps its claims and gets no new ones. */
  takesWork: boolean
  /** The instance is neither paused nor failed, so it is preferred as coordinator. */
  atWork: boolean
  /**
   * Number of the last convergence for which the instance has declared, in this lease term, that all its work has
   * stopped and that the convergence may be planned; 0 if it has declared none.
   */
  stoppedFor: number
}

/**
 * True if the owner's lease term is over and its writes have ended (`LeaseView.drained`), so that its claims can be
 * taken over. `LeaseView.expired` does not suffice, because delayed writes of an expired term may still arrive. An
 * owner without a lease counts as alive: leases are never removed, so it has registered since the leases were read.
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
