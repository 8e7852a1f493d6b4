import { recordTombstones, type TombstoneRecorder } from '../documents/record-tombstones.ts'
import { type StatementError, writeStatements } from '../documents/write-documents.ts'
import { targetOf } from '../documents/write-identities.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, TransientReplyError } from '../mongo/errors.ts'
import { measured } from '../mongo/measured.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { Throttle } from '../throttle/throttle.ts'

export interface SegmentWriteParts {
  destination: Cluster
  metadata: Metadata
  /** Limits the rate and the number of parallel reads and writes. */
  throttle: Throttle
  context: RetryContext
  /** See `TombstoneRecorder`. */
  nextOrder: (count: number) => number
  /** False once the entry has left the catalog. */
  isKnown: (entry: CatalogEntry) => boolean
  /** Updates the entry of a collection that is not where it was expected on the destination (`SharedCatalog`). */
  locate: (entry: CatalogEntry) => Promise<boolean>
}

/**
 * Inserts documents and returns the statements that failed. Returns null when an event dropped the collection in the
 * meantime.
 */
export async function insertInto(
  parts: SegmentWriteParts,
  entry: CatalogEntry,
  documents: Buffer[],
): Promise<StatementError[] | null> {
  const write = (): Promise<StatementError[]> =>
    measured(parts.context, 'copyWrite', () => writeStatements(parts.destination, targetOf(entry), 'insert', documents))
  const failed = await parts.throttle.write(parts.context.signal, write)
  const isMoved = ({ code: of }: StatementError): boolean =>
    of === code.collectionUUIDMismatch || of === code.namespaceNotFound
  if (!failed.some(isMoved)) return failed
  if (!parts.isKnown(entry)) return null
  throw await movedOnDestination(parts, entry)
}

/**
 * Updates the entry of a collection that is not where it was expected on the destination, and returns an error that
 * makes the caller retry. Another instance may have applied an event that renames or drops the collection. Throws
 * FatalError DestinationConflict when a program other than tandem has dropped it.
 */
export async function movedOnDestination(
  { locate }: Pick<SegmentWriteParts, 'locate'>,
  entry: CatalogEntry,
): Promise<Error> {
  await locate(entry)
  return new TransientReplyError('the collection was renamed or dropped on the destination')
}

/** Records identities as tombstones, which are reconciled when the copy of the collection has ended. */
export async function recordIdentities(
  recorder: TombstoneRecorder,
  entry: CatalogEntry,
  idElements: Buffer[],
): Promise<void> {
  if (idElements.length === 0) return
  await recordTombstones(
    recorder,
    entry,
    idElements.map((idElement) => ({ idElement })),
  )
}
