import pLimit from 'p-limit'
import type { Coordination } from '../coordination/coordination.ts'
import { readNames } from '../definitions/list-catalog.ts'
import { listByUuid, readCommitted } from '../definitions/listing.ts'
import { droppedByAnother } from '../definitions/missing-collections.ts'
import { Catalog, type CatalogEntry } from '../domain/catalog.ts'
import { both } from '../domain/in-parallel.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selects } from '../mongo/selection.ts'

export interface SharedCatalogParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  selection: Selects
  coordination: Coordination
  context: RetryContext
}

/**
 * If a collection is missing on the destination for longer than this (ms), somebody else dropped it. A shorter absence
 * proves nothing: a primary that has lost its majority may show an older catalog until it steps down. It steps down
 * within this time (`electionTimeoutMillis`).
 */
const missedMaxMS = 10_000
/**
 * If a collection was not found missing for this long (ms), the earlier absence counts as over. While a collection is
 * missing, each retry of a write finds it missing again, and retries are more frequent than this.
 */
const missedAgainMS = 5_000

/**
 * The catalog that several instances share. The coordinator stores it and all instances load it. The destination may
 * be ahead of it.
 */
export class SharedCatalog {
  readonly catalog = new Catalog()
  readonly #parts: SharedCatalogParts
  readonly #changes = pLimit(1)
  /** When collections were first and last found missing on the destination, by UUID (ms, `performance.now()`). */
  readonly #missed = new Map<string, { since: number; last: number }>()

  constructor(parts: SharedCatalogParts) {
    this.#parts = parts
  }

  /** Loads the stored catalog and the bytes that this instance has copied. */
  async load(): Promise<void> {
    const { metadata, coordination } = this.#parts
    const [entries, bytes] = await both(metadata.collections.load(), metadata.segments.bytesBy(coordination.id))
    for (const entry of entries) this.catalog.add(entry)
    this.#setCopied(bytes)
  }

  /** Loads the bytes that this instance has copied. Other instances count the bytes of segments they took over. */
  async loadCopiedBytes(): Promise<void> {
    const { metadata, coordination } = this.#parts
    this.#setCopied(await metadata.segments.bytesBy(coordination.id))
  }

  #setCopied(bytes: ReadonlyMap<string, number>): void {
    for (const entry of this.catalog.entries()) entry.copiedBytes = bytes.get(entry.uuid) ?? 0
  }

  /**
   * Sets the current destination name of each collection. A process may have crashed after a rename was acknowledged
   * and before it was stored. Returns the entries whose name changed.
   */
  async findNames(): Promise<CatalogEntry[]> {
    const { destination, context } = this.#parts
    const databases = [...this.catalog.databases()]
    const names = await retry('listing databases', context, () => readNames(destination, databases))
    const moved: CatalogEntry[] = []
    for (const entry of this.catalog.entries()) {
      const name = entry.destinationUUID && names.get(entry.destinationUUID)
      if (!name || name === entry.name) continue
      entry.name = name
      moved.push(entry)
    }
    return moved
  }

  /** Called by a new coordinator: its predecessor may have crashed after a rename, before it stored the catalog. */
  async correctNames(): Promise<void> {
    await this.reload()
    await this.exclusively(async () => {
      // If the names were not stored, the next reload would restore the former names, and no later event would correct
      // them.
      await this.#parts.metadata.collections.save(await this.findNames())
    })
  }

  /**
   * Loads the catalog that the coordinator has stored. Updates existing entries in place, because other objects
   * refer to them.
   */
  reload(): Promise<void> {
    return this.exclusively(async () => {
      const stored = new Map((await this.#parts.metadata.collections.load()).map((entry) => [entry.uuid, entry]))
      for (const { uuid } of this.catalog.entries()) if (!stored.has(uuid)) this.catalog.remove(uuid)
      for (const entry of stored.values()) {
        const known = this.catalog.get(entry.uuid)
        if (!known) {
          this.catalog.add(entry)
          continue
        }
        if (known.name !== entry.name) known.sourceName = entry.name
        known.name = entry.name
        known.destinationUUID = entry.destinationUUID
        known.wanted = entry.wanted
        known.refusedIndexes = entry.refusedIndexes
        known.awaitsIndexes = entry.awaitsIndexes
        known.shardKey = entry.shardKey
        // The copy runs concurrently and stores its own progress, so the loaded values may be outdated. An outdated
        // value does not replace a newer one.
        if (entry.planned) {
          known.estimatedBytes = entry.estimatedBytes
          known.estimatedDocuments = entry.estimatedDocuments
        }
        known.planned ||= entry.planned
        known.converging = entry.converging
        known.convergedFrom = entry.convergedFrom
        known.totalCopied = entry.totalCopied ?? known.totalCopied
        // The stored state is 'copied' only when the partitions of this instance have ended the copy as well.
        if (entry.state === 'copied') known.state = 'copied'
        for (const partition of entry.endedPartitions) known.endedPartitions.add(partition)
      }
    })
  }

  /**
   * Updates an entry whose collection is not in the expected namespace on the destination. This happens when an
   * instance took over partitions after a barrier was reached and applies events from before that barrier. When a
   * coordinator crashed during the barrier, even the stored catalog is outdated. Returns false when the collection is
   * no longer in the stored catalog, or is neither on the destination nor on the source. Throws FatalError
   * DestinationConflict when the source has it under a selected name and the destination has lacked it for longer than
   * `missedMaxMS`: the change stream does not send the existing documents again.
   */
  async locate(entry: CatalogEntry): Promise<boolean> {
    const { source, destination, selection } = this.#parts
    await this.reload()
    const known = this.catalog.get(entry.uuid)
    if (!known) return false
    entry.destinationUUID = known.destinationUUID
    const { destinationUUID } = known
    const [found] = destinationUUID ? await listByUuid(destination, entry.database, [destinationUUID]) : []
    if (found) {
      this.#missed.delete(entry.uuid)
      known.name = found.name
      entry.name = found.name
      return true
    }
    // The source is read after the destination. If a coordinator dropped the collection, the source no longer has it
    // under a selected name by now.
    const onSource = await readCommitted(source, () => listByUuid(source, entry.database, [entry.uuid]))
    const selected = known.destinationUUID ? await selection.among(entry.database, onSource) : []
    if (selected.length > 0) this.#refuseMissing(known)
    else this.#missed.delete(entry.uuid)
    return onSource.length > 0
  }

  #refuseMissing(entry: CatalogEntry): void {
    // A new coordinator may have dropped the collection, to create it again for a convergence. Before that, it evicted
    // this instance, and then `fence` throws.
    this.#parts.destination.fence()
    const now = performance.now()
    const known = this.#missed.get(entry.uuid)
    const since = known && now - known.last <= missedAgainMS ? known.since : now
    this.#missed.set(entry.uuid, { since, last: now })
    if (now - since > missedMaxMS) throw droppedByAnother(this.#parts.destination, entry, 'writing documents')
  }

  /** Serializes changes of the catalog. */
  exclusively<T>(change: () => Promise<T>): Promise<T> {
    return this.#changes(change)
  }
}
