import pLimit from 'p-limit'
import { completed, type InstanceContext, storable } from '../../machines/instance-context.ts'
import { deferred } from '../domain/deferred.ts'
import { type Failure, StoppedError, toFailure } from '../domain/errors.ts'
import type { CurrentSession } from './current-session.ts'
import type { SyncSession } from './sync-session.ts'

type StorableContext = Omit<InstanceContext, 'sync'>

export interface StoredContextParts {
  /** mongosyncID. */
  id: string
  /**
   * The context is stored with the metadata of this session, under its lease; it is not stored before the sync exists.
   */
  current: CurrentSession
  /** Aborted when the process stops. */
  stopped: AbortSignal
  onFailure: (failure: Failure) => void
}

/**
 * Stores the context of the instance machine, from which a restart continues. Each write is made under the current
 * lease term. If the term ends first, the write is repeated in the next term. If another process holds the lease,
 * nothing is written.
 */
export class StoredContext {
  readonly #parts: StoredContextParts
  #latest: StorableContext | null = null
  readonly #stores = pLimit(1)
  /** True when another process holds the lease and stores its own context. This process then stores nothing more. */
  #isOver = false
  #woken = deferred<void>()

  constructor(parts: StoredContextParts) {
    this.#parts = parts
    parts.stopped.addEventListener('abort', () => this.wake(), { once: true })
  }

  /** The context that is known to be stored. */
  get latest(): StorableContext | null {
    return this.#latest
  }

  /** Resolves when every context that was given to `store` is stored, or will not be stored any more. */
  get storing(): Promise<unknown> {
    return this.#stores(() => {})
  }

  /** Called when a lease term begins. */
  begin(): void {
    this.#isOver = false
    this.wake()
  }

  /** Wakes waiting writes, for example when the sync was replaced or removed. */
  wake(): void {
    this.#woken.resolve()
    this.#woken = deferred()
  }

  /** Called when another process took the lease. Nothing more is stored until this process takes the lease again. */
  end(): void {
    this.#isOver = true
    this.wake()
  }

  async load(): Promise<InstanceContext | null> {
    const stored = await this.#parts.current.session?.metadata.loadInstances()
    const own = stored?.get(this.#parts.id)
    return own ? completed(own) : null
  }

  /** Sets the context that a predecessor stored and from which this instance continues. */
  restored(context: InstanceContext | null): void {
    // `load` has converted a context of an earlier release to the present form. The machine of a committed instance
    // begins with an equal context, so `store` does not write that context. The instance holds no lease for such a
    // write.
    this.#latest = context && storable(context)
  }

  /** Stores this context after all earlier ones. */
  store(newest: InstanceContext): void {
    const context = storable(newest)
    const { session } = this.#parts.current
    if (!session) return
    void this.#stores(async () => {
      // An equal context must not be written, because a committed instance holds no lease for a write. Compare by
      // value, because the machine copies its context.
      if (JSON.stringify(context) === JSON.stringify(this.#latest)) return
      // If only the limits have changed and there is no lease, do not wait for a lease. The next write stores the
      // limits too.
      const asStored = { ...context, limits: this.#latest?.limits }
      const isLeased = this.#parts.current.session?.lease.termSignal
      if (!isLeased && JSON.stringify(asStored) === JSON.stringify(this.#latest)) return
      try {
        if (await this.#save(session, context)) this.#latest = context
      } catch (error) {
        this.#parts.onFailure(toFailure(error))
      }
    })
  }

  /** Returns false when the context must not be stored any more. */
  async #save(session: SyncSession, context: StorableContext): Promise<boolean> {
    const { id, stopped, current } = this.#parts
    while (!this.#isOver && !stopped.aborted && current.session === session) {
      const woken = this.#woken.promise
      // Aborted when the lease term ends.
      const leaseTerm = session.lease.termSignal
      try {
        if (leaseTerm) {
          await session.metadata.saveInstance(id, context, leaseTerm)
          return true
        }
        await woken
      } catch (error) {
        // That lease term is over. The write is repeated in the next term, even if it was applied.
        if (!(error instanceof StoppedError)) throw error
      }
    }
    return false
  }
}
