import { proveGone } from '../definitions/listing.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isKeyed } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { measuredEach } from '../mongo/measured.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { type RequestedDocuments, readDocuments } from './read-documents.ts'
import { recordTombstones, type TombstoneRecorder } from './record-tombstones.ts'
import type { DocumentWriter } from './write-identities.ts'

export interface ReconcileDependencies extends TombstoneRecorder {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  writer: DocumentWriter
  context: RetryContext
  /**
   * Called when the destination's collection is not in the entry's namespace. Updates the entry from the stored
   * catalog, which another instance may have changed. Returns false when the collection is gone. Omitted when no
   * other instance changes entries.
   */
  locate?: (entry: CatalogEntry) => Promise<boolean>
}

/**
 * Reads the source's documents and passes each batch to `take`. Returns true when the source no longer has the
 * collection; a drop event then follows.
 */
export async function readCurrent(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  requested: RequestedDocuments,
  notBefore: ClusterTime,
  take: (documents: Buffer[]) => Promise<void>,
): Promise<boolean> {
  for (;;) {
    const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
    // An error of `take` says nothing about the source's collection.
    let isTaking = false
    try {
      const batches = readDocuments(dependencies.source, collection, requested, notBefore)
      for await (const documents of measuredEach(dependencies.context, 'applyRead', batches)) {
        isTaking = true
        await take(documents)
        isTaking = false
      }
      return false
    } catch (error) {
      const name = isTaking ? undefined : renamedTo(error)
      if (name === undefined) throw error
      if (name === null) {
        await proveGone(dependencies.source, entry.database, entry.uuid)
        return true
      }
      entry.sourceName = name
    }
  }
}

export async function removeAbsent(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  absent: Buffer[],
): Promise<void> {
  if (absent.length === 0) return
  if (entry.state === 'copying' && !isKeyed(entry)) {
    const removed = absent.map((idElement) => ({ idElement }))
    await recordTombstones(dependencies, entry, removed)
  }
  await dependencies.writer.delete(entry, absent)
}

/** Waits for all writes of an attempt before a retry may start; otherwise an older write could arrive last. */
export async function allSettled(writes: Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(writes)) if (result.status === 'rejected') throw result.reason
}
