import { type AuditEntry, auditEntriesMax } from '../domain/audit-entry.ts'
import { deferred } from '../domain/deferred.ts'
import type { AuditStore } from '../mongo/audit-store.ts'

/** How often what could not be stored is tried again, and a reversal is noticed. */
const saveAgainMS = 5_000
/** A command waits this long for its entry: a destination that does not answer must not keep a pause or an abort back. */
const receiptPatienceMS = 1_000

/**
 * The commands that this instance received. They are kept in memory until there is a sync, and from then on stored with it on the
 * destination: first that a command was received, then its outcome.
 */
export class CommandTrail {
  readonly #store: () => AuditStore | null
  readonly #onTrouble: (error: unknown) => void
  /** Of this process, oldest first: a reversal moves what is stored while commands go on coming. */
  #kept: AuditEntry[] = []
  #unsaved: AuditEntry[] = []
  /** Where all of `#kept` but `#unsaved` is. */
  #savedIn: AuditStore | null = null
  #saving: Promise<void> | null = null
  /** `onTrouble` was called, and nothing was stored since. */
  #troubled = false
  readonly #timer: NodeJS.Timeout

  /** `onTrouble` is called once when entries cannot be stored, and again after they could be. */
  constructor(store: () => AuditStore | null, onTrouble: (error: unknown) => void) {
    this.#store = store
    this.#onTrouble = onTrouble
    this.#timer = setInterval(() => void this.#save(), saveAgainMS).unref()
  }

  /**
   * Adds an entry, or replaces the one with its id. Resolves when it is stored; when there is no sync yet, or it cannot be stored
   * within a second, it is stored later. Never rejects.
   */
  async add(entry: AuditEntry): Promise<void> {
    const without = (entries: readonly AuditEntry[]) => entries.filter(({ id }) => id !== entry.id)
    this.#kept = [...without(this.#kept), entry].slice(-auditEntriesMax)
    this.#unsaved = [...without(this.#unsaved), entry].slice(-auditEntriesMax)
    if (!this.#store()) return
    const late = deferred<void>()
    const timer = setTimeout(late.resolve, receiptPatienceMS)
    await Promise.race([this.#save(), late.promise])
    clearTimeout(timer)
  }

  /** The newest first: of all instances, when there is a sync and its destination answers. */
  async read(): Promise<AuditEntry[]> {
    const stored = (await this.#store()?.read()) ?? []
    const all = new Map([...stored, ...this.#kept].map((entry) => [entry.id, entry]))
    const newestFirst = [...all.values()].sort((one, other) => (one.time < other.time ? 1 : -1))
    return newestFirst.slice(0, auditEntriesMax)
  }

  close(): void {
    clearInterval(this.#timer)
  }

  /** Resolves when nothing is left to store, or storing has failed. The round under way also takes what was added meanwhile. */
  #save(): Promise<void> {
    this.#saving ??= this.#saveAll()
    return this.#saving
  }

  async #saveAll(): Promise<void> {
    // `#saving` is assigned before the end of this clears it.
    await null
    try {
      for (;;) {
        const store = this.#store()
        if (!store) return
        if (store !== this.#savedIn) this.#unsaved = [...this.#kept]
        this.#savedIn = store
        const sent = new Set(this.#unsaved)
        if (sent.size === 0) return
        await store.add([...sent])
        this.#unsaved = this.#unsaved.filter((entry) => !sent.has(entry))
        this.#troubled = false
      }
    } catch (error) {
      if (!this.#troubled) this.#onTrouble(error)
      this.#troubled = true
    } finally {
      this.#saving = null
    }
  }
}
