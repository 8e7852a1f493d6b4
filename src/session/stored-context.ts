import { completed, type InstanceContext, storable } from '../../machines/instance-context.ts'
import { deferred } from '../domain/deferred.ts'
import { type Failure, StoppedError, toFailure } from '../domain/errors.ts'
import type { Metadata } from '../mongo/metadata.ts'

type StorableContext = Omit<InstanceContext, 'sync'>

export interface StoredContextParts {
  /** mongosyncID. */
  id: string
  /** Of the present direction; null before there is a sync. */
  metadata: () => Metadata | null
  /** The present life of the lease by which it is stored: aborted when that is over. Null without the lease. */
  life: () => AbortSignal | null
  /** Aborted when the process stops. */
  stopped: AbortSignal
  onFailure: (failure: Failure) => void
}

/**
 * What must survive of the instance machine. What is stored is what a restart goes on from. It is stored by the lease of that moment: where
 * one life of it ends first, by the next one, and by none where another process has the lease now.
 */
export class StoredContext {
  readonly #parts: StoredContextParts
  #latest: StorableContext | null = null
  #storing: Promise<void> = Promise.resolve()
  /** Another process stores in this one's place: what has happened here is not to be stored any more. */
  #isOver = false
  #woken = deferred<void>()

  constructor(parts: StoredContextParts) {
    this.#parts = parts
    parts.stopped.addEventListener('abort', () => this.wake(), { once: true })
  }

  /** As it is known to be stored. */
  get latest(): StorableContext | null {
    return this.#latest
  }

  /** Resolves when everything that was to be stored by now is, or never will be. */
  get storing(): Promise<void> {
    return this.#storing
  }

  /** A life of the lease begins. */
  begin(): void {
    this.#isOver = false
    this.wake()
  }

  /** There is another sync to store, or none. */
  wake(): void {
    this.#woken.resolve()
    this.#woken = deferred()
  }

  /** Another process has the lease: nothing more is stored, unless this one takes it again. */
  end(): void {
    this.#isOver = true
    this.wake()
  }

  async load(): Promise<InstanceContext | null> {
    const stored = await this.#parts.metadata()?.loadInstances()
    return (stored?.get(this.#parts.id) as InstanceContext | undefined) ?? null
  }

  /** This is what a predecessor has stored, and this instance goes on from. */
  restored(context: InstanceContext | null): void {
    // Completed as the machine completes it: what an earlier release stored is the same, and an instance that is committed holds no lease
    // to store what was added since.
    this.#latest = context && storable(completed(context))
  }

  /** Stores the newest context, in order. */
  store(newest: InstanceContext): void {
    const context = storable(newest)
    const metadata = this.#parts.metadata()
    if (!metadata) return
    this.#storing = this.#storing.then(async () => {
      // By value: the machine copies the context it is given, and a committed instance holds no lease to write by.
      if (JSON.stringify(context) === JSON.stringify(this.#latest)) return
      // It is stored with the next thing that happens: nothing is held back until then.
      const asStored = { ...context, limits: this.#latest?.limits }
      if (!this.#parts.life() && JSON.stringify(asStored) === JSON.stringify(this.#latest)) return
      try {
        if (await this.#save(metadata, context)) this.#latest = context
      } catch (error) {
        this.#parts.onFailure(toFailure(error))
      }
    })
  }

  /** False when it is no longer to be stored. */
  async #save(metadata: Metadata, context: StorableContext): Promise<boolean> {
    const { id, stopped } = this.#parts
    while (!this.#isOver && !stopped.aborted && this.#parts.metadata() === metadata) {
      const woken = this.#woken.promise
      const life = this.#parts.life()
      try {
        if (life) {
          await metadata.saveInstance(id, context, life)
          return true
        }
        await woken
      } catch (error) {
        // That life is over. What was stored meanwhile is stored again by the next one.
        if (!(error instanceof StoppedError)) throw error
      }
    }
    return false
  }
}
