import type { Coordination } from '../coordination/coordination.ts'
import { readNames } from '../definitions/list-catalog.ts'
import { listCollections, readCommitted } from '../definitions/listing.ts'
import { Catalogue, type CatalogueEntry } from '../domain/catalogue.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

export interface SharedCatalogueParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  coordination: Coordination
  context: RetryContext
}

/** The catalogue as several instances share it: the coordinator stores it, everybody loads it, the destination may be beyond it. */
export class SharedCatalogue {
  readonly catalogue = new Catalogue()
  readonly #parts: SharedCatalogueParts
  #busy: Promise<unknown> = Promise.resolve()

  constructor(parts: SharedCatalogueParts) {
    this.#parts = parts
  }

  /** As it is stored, with what this instance has copied. */
  async load(): Promise<void> {
    for (const entry of await this.#parts.metadata.collections.load()) this.catalogue.add(entry)
    await this.countCopied()
  }

  /** What this instance has copied, as it is stored: of what it had begun, others may have taken over the rest and count it. */
  async countCopied(): Promise<void> {
    const { metadata, coordination } = this.#parts
    const bytes = await metadata.segments.bytesBy(coordination.id)
    for (const entry of this.catalogue.entries()) entry.copiedBytes = bytes.get(entry.uuid) ?? 0
  }

  /**
   * Where the destination has each collection now: a rename may have been acknowledged and not yet stored when a process died.
   * Returns those that it has elsewhere.
   */
  async findNames(): Promise<CatalogueEntry[]> {
    const { destination, context } = this.#parts
    const databases = [...this.catalogue.databases()]
    const names = await retry('listing databases', context, () => readNames(destination, databases))
    const moved: CatalogueEntry[] = []
    for (const entry of this.catalogue.entries()) {
      const name = entry.destinationUUID && names.get(entry.destinationUUID)
      if (!name || name === entry.name) continue
      entry.name = name
      moved.push(entry)
    }
    return moved
  }

  /** By the coordinator, where a predecessor in office may have died between the destination and the catalogue. */
  async lookAnew(): Promise<void> {
    await this.reload()
    await this.exclusively(async () => {
      // Stored, or the next who reloads has the former name again, which no event corrects any more.
      await this.#parts.metadata.collections.save(await this.findNames())
    })
  }

  /** The catalogue as the coordinator has stored it by now; entries keep their identity for whoever works with them. */
  reload(): Promise<void> {
    return this.exclusively(async () => {
      const stored = new Map((await this.#parts.metadata.collections.load()).map((entry) => [entry.uuid, entry]))
      for (const { uuid } of this.catalogue.entries()) if (!stored.has(uuid)) this.catalogue.remove(uuid)
      for (const entry of stored.values()) {
        const known = this.catalogue.get(entry.uuid)
        if (!known) {
          this.catalogue.add(entry)
          continue
        }
        if (known.name !== entry.name) known.sourceName = entry.name
        known.name = entry.name
        known.destinationUUID = entry.destinationUUID
        known.wanted = entry.wanted
        known.refusedIndexes = entry.refusedIndexes
        known.shardKey = entry.shardKey
        // The copy goes on beside this and stores what it knows of itself: what was read a moment ago may be behind it, and
        // none of it ever goes back.
        if (entry.planned) {
          known.estimatedBytes = entry.estimatedBytes
          known.estimatedDocuments = entry.estimatedDocuments
        }
        known.planned ||= entry.planned
        known.totalCopied = entry.totalCopied ?? known.totalCopied
        // Stored so only when the partitions of this instance have ended it as well.
        if (entry.state === 'copied') known.state = 'copied'
        for (const partition of entry.endedPartitions) known.endedPartitions.add(partition)
      }
    })
  }

  /**
   * An instance that got its partitions after a barrier was reached, and reads events from before it, finds the destination
   * beyond what its catalogue says; beyond what is stored, too, if a coordinator has died half-way.
   */
  async locate(entry: CatalogueEntry): Promise<boolean> {
    const { source, destination } = this.#parts
    await this.reload()
    const known = this.catalogue.get(entry.uuid)
    if (!known) return false
    entry.destinationUUID = known.destinationUUID
    const listed = await listCollections(destination, entry.database)
    const found = listed.find((one) => one.uuid === known.destinationUUID)
    if (found) {
      known.name = found.name
      entry.name = found.name
      return true
    }
    const standing = await readCommitted(source, () => listCollections(source, entry.database))
    return standing.some((one) => one.uuid === entry.uuid)
  }

  /** One at a time changes the catalogue. */
  exclusively<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#busy.then(work)
    this.#busy = run.catch(() => {})
    return run
  }
}
