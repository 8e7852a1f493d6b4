import pLimit from 'p-limit'
import { identityKey, unread } from '../documents/identity.ts'
import { type Identities, reconcileDocuments } from '../documents/reconcile-documents.ts'
import type { ReconcileDependencies } from '../documents/reconcile-steps.ts'
import { type Catalog, type CatalogEntry, needsOneLane, waitsForCopy } from '../domain/catalog.ts'
import { namespace } from '../domain/namespace.ts'
import { eventsPerBatch } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { Tombstone } from '../mongo/tombstone-store.ts'

const tombstonesAtOnce = 500
/**
 * During a turn (see `end`), changes of all collections wait, and at most one batch of events is routed between two
 * turns. A turn reconciles more tombstones than such a batch can add, so all tombstones are reconciled after a limited
 * number of turns.
 */
const tombstonesPerTurn = 2 * eventsPerBatch

export interface CopyEndsParts {
  source: Cluster
  metadata: Metadata
  catalog: Catalog
  documents: ReconcileDependencies
  /** The partitions whose events are applied here. */
  partitions: ReadonlyMap<number, { epoch: number }>
  partitionCount: number
  /** True when several instances share the events. */
  shared: boolean
}

/** Ends the copies of collections for the partitions of one instance. */
export class CopyEnds {
  readonly #parts: CopyEndsParts
  readonly #oneAtATime = pLimit(1)
  readonly #closed = new AbortController()
  readonly #removals = new Set<Promise<void>>()

  constructor(parts: CopyEndsParts) {
    this.#parts = parts
  }

  /**
   * Ends the copy of this collection for the partitions that are applied here. Called when all segments of the
   * collection are stored as done. A convergence may have recorded very many tombstones, so they are reconciled in
   * several turns, and a batch of events can be routed between two turns. Only one collection has turns at a time,
   * because turns of several collections in a row would delay events longer. When all partitions have ended the copy,
   * the tombstones are removed while events are applied. The next call continues a removal that was interrupted.
   * @param turn runs the given work while no write is in flight and no event is routed
   */
  async end(entry: CatalogEntry, turn: (work: () => Promise<void>) => Promise<void>): Promise<void> {
    if (entry.state !== 'copied') {
      if (!(await this.isRecorded(entry))) return await this.mark(entry)
      await this.#oneAtATime(async () => {
        let isOver = false
        let after: Tombstone | null = null
        while (!isOver) {
          await turn(async () => {
            after = this.#parts.catalog.get(entry.uuid) === entry ? await this.reconcile(entry, after) : null
            isOver = after === null
          })
        }
      })
      entry.hasTombstones = true
    }
    if (entry.hasTombstones) await this.#removeTombstones(entry)
  }

  /** Stops removals of tombstones. Resolves when none is in progress. The next event application continues them. */
  async close(): Promise<void> {
    this.#closed.abort()
    await Promise.allSettled(this.#removals)
  }

  /**
   * Resolves with true when any instance may have recorded tombstones during the copy. Other instances may have owned
   * these partitions before.
   */
  async isRecorded(entry: CatalogEntry): Promise<boolean> {
    const { metadata, shared } = this.#parts
    return entry.hasTombstones || waitsForCopy(entry) || shared || (await metadata.tombstones.isRecorded(entry.uuid))
  }

  /**
   * Applies the recorded tombstones of one turn. The last turn sets the state `copied`: later events are no longer
   * recorded. No other writes may be in flight during a turn. Between two turns, events may be applied as in the state
   * `copying`. The tombstones that they record need no reconciliation, because no insert of the copy is in flight any
   * more. All tombstones of a capped collection are applied in one turn, because their order is part of its content.
   * @param from the tombstone at which the previous turn ended; null for the first turn
   * @returns the tombstone after which the next turn continues; null when the state is `copied`
   */
  async reconcile(entry: CatalogEntry, from: Tombstone | null = null): Promise<Tombstone | null> {
    const { metadata, source, documents, partitions, partitionCount } = this.#parts
    // In the state 'copied', identities are applied and not recorded.
    const asCopied = { ...entry, state: 'copied' as const }
    const most = waitsForCopy(entry) ? Number.POSITIVE_INFINITY : tombstonesPerTurn
    let after = from
    let count = 0
    const isOneLane = needsOneLane(entry)
    const readsAll = isOneLane || partitions.size === partitionCount
    const owned = readsAll ? undefined : { partitions: [...partitions.keys()], count: partitionCount }
    while (!isOneLane || partitions.has(0)) {
      const tombstones: Tombstone[] = await metadata.tombstones.read(entry.uuid, after, tombstonesAtOnce, owned)
      const last = tombstones.at(-1)
      if (!last) break
      const identities: Identities = new Map()
      for (const { idElement } of tombstones) identities.set(identityKey(idElement), unread(idElement))
      await reconcileDocuments(documents, asCopied, identities, source.latest)
      after = last
      count += tombstones.length
      if (count >= most) return after
    }
    await this.mark(entry)
    return null
  }

  /**
   * Removes the tombstones of a collection if all partitions have ended its copy. Otherwise the owners of the other
   * partitions still need the tombstones, and the last of these owners removes them.
   */
  async #removeTombstones(entry: CatalogEntry): Promise<void> {
    const { tombstones } = this.#parts.metadata
    if (entry.totalCopied === null) return
    if (await tombstones.isRecorded(entry.uuid)) {
      const removal = tombstones.remove([entry], this.#closed.signal)
      this.#removals.add(removal)
      await removal.finally(() => this.#removals.delete(removal))
    }
    entry.hasTombstones = false
  }

  /** Sets the state 'copied' for these partitions and stores it. */
  async mark(entry: CatalogEntry): Promise<void> {
    const { catalog, metadata, partitions, partitionCount, documents } = this.#parts
    if (catalog.get(entry.uuid) !== entry) return
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
