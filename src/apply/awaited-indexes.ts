import type { Coordination } from '../coordination/coordination.ts'
import type { SyncStore } from '../coordination/sync-store.ts'
import type { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { StoppedError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { SharedCatalog } from './shared-catalog.ts'

export interface AwaitedIndexesParts {
  shared: SharedCatalog
  definitions: DefinitionReconciler
  metadata: Metadata
  coordination: Coordination
  store: SyncStore
  context: RetryContext
  /** Runs the work while no definition change is applied. */
  exclusively: <T>(work: () => Promise<T>) => Promise<T>
  atStep: (step: string) => void
}

/** Collections whose indexes are built in parallel. One command builds all indexes of a collection in one scan. */
const buildsAtOnce = 4
/** Interval between reads of the catalog by a coordinator that owns no partition. */
const reloadMS = 3_000

/**
 * Builds the indexes of collections whose copy has ended, if `buildIndexes` delays them until then. The coordinator does
 * this while events are applied. A stored flag of the collection (`awaitsIndexes`) says that its indexes are not built
 * yet, so a successor continues, and every instance knows when a commit may begin.
 *
 * No definition change is applied during a build: the server refuses to rename a collection that has a build in
 * progress, and a build must not recreate an index that the source has dropped. A DDL event therefore waits for the
 * builds in progress, and is applied before any further build begins.
 */
export class AwaitedIndexes {
  readonly #parts: AwaitedIndexesParts
  #work: Promise<void> | null = null
  #reloadedAt = 0
  /** The error that ended the last builds; null if none has failed. */
  failure: unknown = null

  constructor(parts: AwaitedIndexesParts) {
    this.#parts = parts
  }

  /** The builds in progress; null when there are none. */
  get work(): Promise<void> | null {
    return this.#work
  }

  /** Starts the builds that are due, unless some are in progress. */
  start(ended: AbortSignal): void {
    this.#work ??= this.#build(ended)
      .catch((error) => {
        if (!(error instanceof StoppedError)) this.failure = error
      })
      .finally(() => {
        this.#work = null
      })
  }

  async #build(ended: AbortSignal): Promise<void> {
    const { shared, coordination, store, exclusively } = this.#parts
    if (!coordination.leading || !shared.catalog.entries().some((entry) => entry.awaitsIndexes)) return
    await this.#reload()
    const due = (): CatalogEntry[] => shared.catalog.entries().filter((entry) => this.#isDue(entry))
    if (due().length === 0) return
    while (!ended.aborted && coordination.leading && due().length > 0) {
      // A DDL event that waits for this call is applied before the next builds begin.
      await exclusively(() =>
        inParallel(buildsAtOnce, due().slice(0, buildsAtOnce), async (entry) => {
          if (!ended.aborted) await this.#buildOf(entry)
        }),
      )
      // This is stored even if no other instance is known, because an instance that has just joined may have loaded the
      // catalog before the builds ended.
      await store.catalogChanged()
    }
  }

  async #buildOf(entry: CatalogEntry): Promise<void> {
    const { shared, definitions, metadata, context, atStep } = this.#parts
    const began = performance.now()
    atStep('buildIndexes')
    await definitions.buildAwaited(entry)
    await shared.exclusively(async () => {
      if (shared.catalog.get(entry.uuid) !== entry) return
      entry.awaitsIndexes = false
      await metadata.collections.save([entry])
    })
    const seconds = (performance.now() - began) / 1_000
    const [name, count] = [namespace(entry.database, entry.name), entry.wanted.indexes.length]
    context.journal?.('indexes built', { namespace: name, indexes: count, seconds })
  }

  #isDue(entry: CatalogEntry): boolean {
    if (this.#parts.shared.catalog.get(entry.uuid) !== entry) return false
    return entry.awaitsIndexes && entry.state === 'copied' && entry.destinationUUID !== null
  }

  /**
   * Reloads the catalog if this instance owns no partition. In memory, a collection becomes `copied` when this
   * instance's own partitions have ended its copy. A coordinator without partitions must therefore read from the stored
   * catalog that a copy has ended.
   */
  async #reload(): Promise<void> {
    const { coordination, shared } = this.#parts
    const now = performance.now()
    if (coordination.held.size > 0 || now - this.#reloadedAt < reloadMS) return
    this.#reloadedAt = now
    await shared.reload()
  }
}
