import { type LeaseView, type OwnerToken, ownerToken } from '../domain/owner.ts'

/** What an instance announces to the others in its lease (`LeaseView`). */
export interface Announcement {
  takesWork: boolean
  atWork: boolean
  stoppedFor: number
}

/**
 * True if the lease of this owner shows this. Compares with the lease as read, not with the last announcement: each lease
 * term begins with these fields reset, and the server may have applied a delayed announcement, which was considered
 * lost, after a newer one.
 */
export function isAnnounced(
  { takesWork, atWork, stoppedFor }: Announcement,
  leases: readonly LeaseView[],
  owner: OwnerToken,
): boolean {
  const shown = leases.find(({ id, epoch }) => ownerToken(id, epoch) === owner)
  return shown?.takesWork === takesWork && shown.atWork === atWork && shown.stoppedFor === stoppedFor
}
