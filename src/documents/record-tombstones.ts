import type { CatalogEntry } from '../domain/catalog.ts'
import type { Metadata } from '../mongo/metadata.ts'

export interface TombstoneRecorder {
  metadata: Pick<Metadata, 'tombstones'>
  /** Reserves `count` ascending numbers and returns the first. They give the order in which identities are recorded. */
  nextOrder: (count: number) => number
}

/**
 * Records identities that must be reconciled in the given order after the copy of their collection has ended.
 * `reorder` moves an identity that is already recorded to the end.
 */
export async function recordTombstones(
  { metadata, nextOrder }: TombstoneRecorder,
  entry: CatalogEntry,
  identities: readonly { idElement: Buffer; reorder?: boolean }[],
): Promise<void> {
  const first = nextOrder(identities.length)
  const tombstones = identities.map(({ idElement, reorder = false }, index) => ({
    idElement,
    order: first + index,
    reorder,
  }))
  await metadata.tombstones.add(entry.uuid, tombstones, entry.convergedFrom)
  entry.hasTombstones = true
}
