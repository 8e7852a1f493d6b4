import { transition } from 'xstate'
import { syncMachine } from '../../machines/sync.ts'
import type { SyncEvent } from '../../machines/sync-context.ts'
import { type SyncSnapshot, type SyncView, viewOf } from '../../machines/sync-view.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { StoredDocuments } from '../mongo/stored-documents.ts'
import { type StoredSync, syncFrom } from './stored-sync.ts'

const collection = 'stages'
const id = { _id: 'sync' }
const version = { writes: 2, reads: [1, 2] }

/**
 * The sync machine's snapshot, stored on the destination for all instances. Each event is one write, on the condition
 * that nothing was stored since the snapshot was read, so a delayed or repeated write changes nothing.
 */
export class SyncStore {
  readonly #stored: StoredDocuments
  readonly #generation: number
  #latest: { snapshot: SyncSnapshot; revision: number | null }

  /** @param generation how often the sync was reversed */
  constructor(destination: Cluster, context: RetryContext, generation: number) {
    this.#stored = new StoredDocuments(destination, context, version)
    this.#generation = generation
    this.#latest = syncFrom(null, generation)
  }

  /** The snapshot that was loaded last, for reports that do not read the database. */
  get latest(): SyncSnapshot {
    return this.#latest.snapshot
  }

  /** The same snapshot in the form that the instance machine takes. */
  get view(): SyncView {
    return viewOf(this.#latest.snapshot, this.#latest.revision ?? 0)
  }

  /** @param until cancels the read, which then rejects with StoppedError */
  async load(until?: AbortSignal): Promise<SyncSnapshot> {
    return (await this.#load(until && this.#stored.until(until))).snapshot
  }

  /**
   * Stores the state that this event leads to, if the machine accepts the event.
   * @param until cancels the write, which then rejects with StoppedError
   * @returns the snapshot that is stored afterwards; it shows whether the event took effect, also when a reply was lost
   */
  async send(event: SyncEvent, until?: AbortSignal): Promise<SyncSnapshot> {
    const stored = until ? this.#stored.until(until) : this.#stored
    for (;;) {
      const { snapshot: before, revision } = await this.#load(stored)
      if (!before.can(event)) return before
      const [after] = transition(syncMachine, before, event)
      const { value, context } = after
      const found = await stored.findAndUpdate(
        collection,
        // A null revision matches a document in the earlier form, or none.
        revision === null ? { ...id, revision: null } : { ...id, revision },
        { $set: { revision: (revision ?? 0) + 1, value, context } },
        revision === null,
      )
      if (found) return this.#take(found).snapshot
    }
  }

  /** Begins the sync on this destination, in the state in which it was moved here. */
  async begin(moved: StoredSync): Promise<void> {
    await this.#stored.replace(collection, id._id, moved)
  }

  /** Number of changes to the catalog of collections. It increases whenever the coordinator changes the catalog. */
  async catalogueChanges(): Promise<number> {
    return ((await this.#stored.findOne(collection, id))?.['catalogue'] as number | undefined) ?? 0
  }

  async catalogueChanged(): Promise<void> {
    await this.#stored.update(collection, [{ q: id, u: { $set: {}, $inc: { catalogue: 1 } }, upsert: true }])
  }

  async #load(stored = this.#stored): Promise<{ snapshot: SyncSnapshot; revision: number | null }> {
    return this.#take(await stored.findOne(collection, id))
  }

  #take(stored: object | null): { snapshot: SyncSnapshot; revision: number | null } {
    const taken = syncFrom(stored, this.#generation)
    // An earlier read may return later.
    if ((taken.revision ?? 0) >= (this.#latest.revision ?? 0)) this.#latest = taken
    return taken
  }
}
