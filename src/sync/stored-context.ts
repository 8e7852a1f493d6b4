import { completed, type InstanceContext, storable } from '../../machines/instance-context.ts'
import { type Failure, StoppedError, toFailure } from '../domain/errors.ts'
import type { Metadata } from '../mongo/metadata.ts'

type StorableContext = Omit<InstanceContext, 'sync'>

export interface StoredContextParts {
  /** mongosyncID. */
  id: string
  /** Of the present direction; null before there is a sync. */
  metadata: () => Metadata | null
  /** Whether this process may write what is stored. */
  holdsLease: () => boolean
  onFailure: (failure: Failure) => void
}

/** What must survive of the instance machine. What is stored is what a restart goes on from. */
export class StoredContext {
  readonly #parts: StoredContextParts
  #latest: StorableContext | null = null
  #storing: Promise<void> = Promise.resolve()

  constructor(parts: StoredContextParts) {
    this.#parts = parts
  }

  /** As it is known to be stored. */
  get latest(): StorableContext | null {
    return this.#latest
  }

  /** Resolves when everything that was to be stored by now is. */
  get storing(): Promise<void> {
    return this.#storing
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
    this.#storing = this.#storing.then(async () => {
      // By value: the machine copies the context it is given, and a committed instance holds no lease to write by.
      if (JSON.stringify(context) === JSON.stringify(this.#latest)) return
      // It is stored with the next thing that happens: nothing is held back until then.
      const asStored = { ...context, limits: this.#latest?.limits }
      if (!this.#parts.holdsLease() && JSON.stringify(asStored) === JSON.stringify(this.#latest)) return
      try {
        await this.#parts.metadata()?.saveInstance(this.#parts.id, context)
        this.#latest = context
      } catch (error) {
        if (error instanceof StoppedError) return
        this.#parts.onFailure(toFailure(error))
      }
    })
  }
}
