import { transition } from 'xstate'
import { syncMachine } from '../../machines/sync.ts'
import type { SyncEvent } from '../../machines/sync-context.ts'
import { type SyncSnapshot, type SyncView, viewOf } from '../../machines/sync-view.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { StoredDocuments } from '../mongo/stored-documents.ts'
import { syncStateCollection } from '../mongo/stored-names.ts'
import { type StoredSync, syncFrom } from './stored-sync.ts'

const collection = syncStateCollection
const id = { _id: 'sync' }
/**
 * Version 3 added convergences. A snapshot of version 2 does not have them, and is read as a sync that had no
 * convergence. Version 4 added filters that replace those of the start. An earlier release would use the former
 * filters, so it must refuse version 4. Version 5 has other names for two states and two fields. An earlier
 * release does not know these states. Version 6 stores whether the plan of new filters has begun
 * (`FilterChange.begun`), which an earlier release does not report. Every event that an instance of this release stores
 * has version 6, and it stores one at the latest when it becomes the coordinator. From then on, instances of an earlier
 * release refuse the sync.
 */
const version = { writes: 6, reads: [1, 2, 3, 4, 5, 6] }

/**
 * The sync machine's snapshot, stored on the destination for all instances. Each event is one write, which takes effect
 * only if nothing was stored since the snapshot was read. A delayed or repeated write therefore changes nothing.
 */
export class SyncStore {
  readonly #stored: StoredDocuments
  readonly #destination: Cluster
  readonly #generation: number
  #latest: { snapshot: SyncSnapshot; revision: number | null }
  /** True once the stored state was read, even if there was none. */
  #isLoaded = false

  /**
   * @param generation how often the sync was reversed
   * @param database the metadata database; by default, that of the cluster at this moment
   */
  constructor(destination: Cluster, context: RetryContext, generation: number, database?: string) {
    this.#stored = new StoredDocuments(destination, context, version, database)
    this.#destination = destination
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

  /** The revision of `latest`; null if nothing is stored, and undefined before the first read. */
  get revision(): number | null | undefined {
    return this.#isLoaded ? this.#latest.revision : undefined
  }

  /** The destination's cluster time in its newest reply. Unlike the clocks of hosts, it is the same for all instances. */
  get clusterTime(): ClusterTime {
    return this.#destination.latest
  }

  /** @param until cancels the read, which then rejects with StoppedError */
  async load(until?: AbortSignal): Promise<SyncSnapshot> {
    return await this.#stored.until(until, async (stored) => (await this.#load(stored)).snapshot)
  }

  /**
   * Stores the state that this event leads to, if the machine accepts the event.
   * @param until cancels the write, which then rejects with StoppedError
   * @returns the snapshot that is stored afterwards; it shows whether the event took effect, also when a reply was lost
   */
  async send(event: SyncEvent, until?: AbortSignal): Promise<SyncSnapshot> {
    return await this.#stored.until(until, (stored) => this.#send(event, stored))
  }

  async #send(event: SyncEvent, stored: StoredDocuments): Promise<SyncSnapshot> {
    // A commit sends one event after another while users wait. The known state is usually current, so the first attempt
    // does not read the stored state. If the known state is outdated, the write changes nothing.
    const known = this.#isLoaded && this.#latest.snapshot.can(event) ? this.#latest : null
    for (let current = known; ; current = null) {
      const { snapshot: before, revision } = current ?? (await this.#load(stored))
      if (!before.can(event)) return before
      const [after] = transition(syncMachine, before, event)
      const { value, context } = after
      const found = await stored.findAndUpdate(
        collection,
        // A document of schema version 1 has no revision, so null matches it. If none is stored, the upsert adds one.
        revision === null ? { ...id, revision: null } : { ...id, revision },
        { $set: { revision: (revision ?? 0) + 1, value, context } },
        revision === null,
      )
      if (found) return this.#take(found).snapshot
    }
  }

  /**
   * Stores the initial state of a reversed sync on its new destination. Changes nothing if the stored sync has already
   * had an event: a delayed write of an earlier coordinator must not reset a running sync.
   * @returns false if a sync that has had an event is stored
   */
  async begin(moved: StoredSync): Promise<boolean> {
    const withoutEvent = { ...id, revision: { $in: [null, moved.revision] } }
    const write = () => this.#stored.findAndUpdate(collection, withoutEvent, { $set: moved }, true)
    // The filter does not match a sync that has had an event, so the upsert fails with a duplicate `_id`, and the result
    // is null. The result is also null if another instance has inserted the initial state since the server searched for
    // one. The server repeats such an upsert only if the query is nothing but an equality on the key of the unique index.
    // The second write then matches the state of the other instance, which is the same.
    return ((await write()) ?? (await write())) !== null
  }

  /** Number of changes to the catalog of collections. It increases whenever the coordinator changes the catalog. */
  async catalogChanges(): Promise<number> {
    return ((await this.#stored.findOne(collection, id))?.['catalogue'] as number | undefined) ?? 0
  }

  async catalogChanged(): Promise<void> {
    await this.#stored.update(collection, [{ q: id, u: { $set: {}, $inc: { catalogue: 1 } }, upsert: true }])
  }

  async #load(stored: StoredDocuments): Promise<{ snapshot: SyncSnapshot; revision: number | null }> {
    return this.#take(await stored.findOne(collection, id))
  }

  #take(stored: object | null): { snapshot: SyncSnapshot; revision: number | null } {
    const taken = syncFrom(stored, this.#generation)
    this.#isLoaded = true
    // Replies to reads may arrive out of order.
    if ((taken.revision ?? 0) >= (this.#latest.revision ?? 0)) this.#latest = taken
    return taken
  }
}
