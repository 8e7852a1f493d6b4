import { identityKey, unread } from '../documents/identity.ts'
import { type Identities, type ReconcileDependencies, reconcileDocuments } from '../documents/reconcile-documents.ts'
import { type Catalogue, type CatalogueEntry, needsOneLane, waitsForCopy } from '../domain/catalogue.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { Tombstone } from '../mongo/tombstone-store.ts'

const tombstonesAtOnce = 500

export interface CopyEndsParts {
  source: Cluster
  metadata: Metadata
  catalogue: Catalogue
  documents: ReconcileDependencies
  /** The partitions whose events are applied here. */
  partitions: ReadonlyMap<number, { epoch: number }>
  partitionCount: number
  /** True when several instances share the events. */
  shared: boolean
}

/** Finishes a collection for the partitions of one instance, once all instances have ended the collection's copy. */
export class CopyEnds {
  readonly #parts: CopyEndsParts
  constructor(parts: CopyEndsParts) {
    this.#parts = parts
  }

  /**
   * Whether any instance may have recorded tombstones during the copy: others may have owned these partitions before.
   */
  async isRecorded(entry: CatalogueEntry): Promise<boolean> {
    const { metadata, shared } = this.#parts
    return entry.hasTombstones || waitsForCopy(entry) || shared || (await metadata.tombstones.isRecorded(entry.uuid))
  }

  /**
   * Applies the recorded tombstones. Later events are applied directly and no longer recorded. No other writes may be
   * in flight.
   */
  async reconcile(entry: CatalogueEntry): Promise<void> {
    const { metadata, source, documents, partitions, partitionCount: count } = this.#parts
    // In the state 'copied', identities are applied and not recorded.
    const deferred = { ...entry, state: 'copied' as const }
    let after: Tombstone | null = null
    const whole = needsOneLane(entry)
    const of = whole || partitions.size === count ? undefined : { partitions: [...partitions.keys()], count }
    while (!whole || partitions.has(0)) {
      const tombstones: Tombstone[] = await metadata.tombstones.read(entry.uuid, after, tombstonesAtOnce, of)
      const last = tombstones.at(-1)
      if (!last) break
      const identities: Identities = new Map()
      for (const { idElement } of tombstones) identities.set(identityKey(idElement), unread(idElement))
      await reconcileDocuments(documents, deferred, identities, source.latest)
      after = last
    }
    await this.mark(entry)
  }

  /** Sets the state 'copied' for these partitions and stores it. */
  async mark(entry: CatalogueEntry): Promise<void> {
    const { catalogue, metadata, partitions, partitionCount, documents } = this.#parts
    if (catalogue.get(entry.uuid) !== entry) return
    entry.state = 'copied'
    const ended = [...partitions].filter(([partition]) => !entry.endedPartitions.has(partition))
    const epochs = new Map(ended.map(([partition, { epoch }]) => [partition, epoch]))
    entry.totalCopied = await metadata.collections.endCopy(entry.uuid, epochs, partitionCount)
    for (const partition of epochs.keys()) entry.endedPartitions.add(partition)
    if (ended.length === 0) return
    const name = namespace(entry.database, entry.name)
    const copied = { namespace: name, bytes: entry.copiedBytes, partitions: ended.length }
    documents.context.journal?.('collection copied', copied)
  }
}
