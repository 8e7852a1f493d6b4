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
 * The sync machine's snapshot, as stored on the destination for all instances. An event is one write on the condition that nothing
 * was stored since the snapshot was read, so a late or repeated write changes nothing.
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

  /** As loaded last, for what is shown without asking. */
  get latest(): SyncSnapshot {
    return this.#latest.snapshot
  }

  /** The same, for the instance machine. */
  get view(): SyncView {
    return viewOf(this.#latest.snapshot, this.#latest.revision ?? 0)
  }

  /** @param until gives it up: rejects with StoppedError then */
  async load(until?: AbortSignal): Promise<SyncSnapshot> {
    return (await this.#load(until && this.#stored.until(until))).snapshot
  }

  /**
   * Stores what the machine comes to by this event, where it accepts it.
   * @param until gives it up: rejects with StoppedError then
   * @returns what is stored then. It tells whether the event took effect: an answer that was lost cannot
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
        // Of a document in an earlier form, or none.
        revision === null ? { ...id, revision: null } : { ...id, revision },
        { $set: { revision: (revision ?? 0) + 1, value, context } },
        revision === null,
      )
      if (found) return this.#take(found).snapshot
    }
  }

  /** The sync begins here, in the state that it was moved in. */
  async begin(moved: StoredSync): Promise<void> {
    await this.#stored.replace(collection, id._id, moved)
  }

  /** How often the catalogue of collections was changed: it rises whenever the coordinator changes it. */
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
    // What was read earlier may arrive later.
    if ((taken.revision ?? 0) >= (this.#latest.revision ?? 0)) this.#latest = taken
    return taken
  }
}
