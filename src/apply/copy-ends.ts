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
  /** Those whose events are applied here. */
  partitions: ReadonlyMap<number, { epoch: number }>
  partitionCount: number
  /** Several instances share the events. */
  shared: boolean
}

/** What is due for the partitions of one instance once a collection's copy has ended on all of them. */
export class CopyEnds {
  readonly #parts: CopyEndsParts
  constructor(parts: CopyEndsParts) {
    this.#parts = parts
  }

  /** Whether identities may have been recorded while it was copied, by whomever: others may have had these partitions before. */
  async isRecorded(entry: CatalogueEntry): Promise<boolean> {
    const { metadata, shared } = this.#parts
    return entry.hasTombstones || waitsForCopy(entry) || shared || (await metadata.tombstones.isRecorded(entry.uuid))
  }

  /** Applies what was recorded, and from then on what comes; nothing else may be on its way. */
  async reconcile(entry: CatalogueEntry): Promise<void> {
    const { metadata, source, documents, partitions, partitionCount: count } = this.#parts
    // From here on its identities are applied, not recorded.
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

  /** Copied, for these partitions, and stored so. */
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
