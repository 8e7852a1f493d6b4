/**
 * Who owns a claim (a partition, a segment, the coordinator's office): an instance in one of its lives. Its epoch is that
 * of the instance's lease and rises with every life, so what a dead life owned can be told from what the next one owns.
 */
export type OwnerToken = string

export function ownerToken(id: string, epoch: number): OwnerToken {
  return `${id}#${epoch}`
}

export function parseOwner(token: OwnerToken): { id: string; epoch: number } {
  const at = token.lastIndexOf('#')
  return { id: token.slice(0, at), epoch: Number(token.slice(at + 1)) }
}

/** An instance's lease, as far as others care. */
export interface LeaseView {
  /** mongosyncID. */
  id: string
  epoch: number
  /** Every life before this epoch is over: its last write has ended. */
  drained: number
  /** As stored: another one after each renewal. */
  expiresAt: Date
  /** Whoever looks has seen it unrenewed for as long as a lease lasts, or it was given up. */
  expired: boolean
  incarnation: string
  /** Incarnations before it whose writes have not been seen to end. */
  predecessors: string[]
  /** With which writes of theirs, and of its own, may still be on their way; null on a sharded cluster, and of an earlier release. */
  sessions: { base: string; count: number } | null
  /** Its life was ended by others, perhaps not yet to the end: whoever began may have died. */
  evicted: boolean
  /** False while it is paused: it keeps what it has and gets nothing new. */
  takesWork: boolean
  /** Neither paused nor failed: it goes before the others in the coordinator's office. */
  atWork: boolean
}

/**
 * True when the owner's life is over for certain, so that what it owned may be claimed. An owner without a lease lives: leases
 * are never removed, so it is one that has come since they were looked at.
 */
export function isExpired(token: OwnerToken, leases: readonly LeaseView[]): boolean {
  const { id, epoch } = parseOwner(token)
  const lease = leases.find((one) => one.id === id)
  return lease !== undefined && lease.drained > epoch
}
