import { type AuditEntry, auditEntriesMax } from '../domain/audit-entry.ts'
import { deferred } from '../domain/deferred.ts'
import type { AuditStore } from '../mongo/audit-store.ts'

/** How often to check whether entries must be stored (a sync began or was reversed), ms. */
const checkMS = 5_000
/** Delay before entries that could not be stored are sent again, ms. Each failure doubles it, up to `checkMS`. */
const firstDelayMS = 100
/**
 * How long a command waits until its entry is stored, ms. A destination that does not answer must not delay a pause or
 * an abort.
 */
const receiptPatienceMS = 1_000

/**
 * The commands that this instance received. They are kept in memory until the sync exists, and are then stored on the
 * destination. An entry first records that a command was received, then the command's outcome.
 */
export class CommandTrail {
  readonly #target: { readonly audit: AuditStore | null }
  readonly #onTrouble: (error: unknown) => void
  /**
   * Entries of this process, oldest first. They are kept because a reversal copies the stored entries to the other
   * cluster and may miss those that are stored meanwhile. All kept entries are therefore stored again there.
   */
  #kept: AuditEntry[] = []
  #unsaved: AuditEntry[] = []
  /** The store that holds all of `#kept` except `#unsaved`. */
  #savedIn: AuditStore | null = null
  #saving: Promise<void> | null = null
  /** True when `onTrouble` was called and nothing was stored since. */
  #troubled = false
  readonly #timer: NodeJS.Timeout
  #retryTimer: NodeJS.Timeout | undefined
  #delayMS = firstDelayMS
  #isClosed = false

  /**
   * `target.audit` is the store of the current direction, null before the sync exists.
   *
   * `onTrouble` is called when entries cannot be stored. It is not called again until a later attempt has succeeded.
   */
  constructor(target: { readonly audit: AuditStore | null }, onTrouble: (error: unknown) => void, everyMS = checkMS) {
    this.#target = target
    this.#onTrouble = onTrouble
    this.#timer = setInterval(() => void this.#save(), everyMS).unref()
  }

  /**
   * Adds an entry, or replaces the one with its id. Resolves when it is stored. If no sync exists yet, or the entry
   * cannot be stored within a second, it resolves anyway, and the entry is stored later. Never rejects.
   */
  async add(entry: AuditEntry): Promise<void> {
    const without = (entries: readonly AuditEntry[]) => entries.filter(({ id }) => id !== entry.id)
    this.#kept = [...without(this.#kept), entry].slice(-auditEntriesMax)
    this.#unsaved = [...without(this.#unsaved), entry].slice(-auditEntriesMax)
    if (!this.#target.audit) return
    await this.#saveInTime()
  }

  async #saveInTime(): Promise<void> {
    const late = deferred<void>()
    const timer = setTimeout(late.resolve, receiptPatienceMS)
    await Promise.race([this.#save(), late.promise])
    clearTimeout(timer)
  }

  /**
   * Returns the newest entries first. Once the sync exists, they include the entries of all instances. Rejects when the
   * destination does not answer.
   */
  async read(): Promise<AuditEntry[]> {
    const stored = (await this.#target.audit?.read()) ?? []
    const all = new Map([...stored, ...this.#kept].map((entry) => [entry.id, entry]))
    const newestFirst = [...all.values()].sort((one, other) => (one.time < other.time ? 1 : -1))
    return newestFirst.slice(0, auditEntriesMax)
  }

  /** Tries once more to store the entries that are not stored yet. Waits at most a second. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearInterval(this.#timer)
    clearTimeout(this.#retryTimer)
    if (this.#unsaved.length > 0 && this.#target.audit) await this.#saveInTime()
  }

  /**
   * Resolves when nothing is left to store, when no sync exists yet, or when storing has failed. A save that is under
   * way includes entries added during it.
   */
  #save(): Promise<void> {
    this.#saving ??= this.#saveAll()
    return this.#saving
  }

  async #saveAll(): Promise<void> {
    // Yields once, so that `#saving` is assigned before `finally` clears it.
    await null
    try {
      for (;;) {
        const store = this.#target.audit
        if (!store) return
        if (store !== this.#savedIn) this.#unsaved = [...this.#kept]
        this.#savedIn = store
        const sent = new Set(this.#unsaved)
        if (sent.size === 0) return
        await store.add([...sent])
        this.#unsaved = this.#unsaved.filter((entry) => !sent.has(entry))
        this.#troubled = false
        this.#delayMS = firstDelayMS
      }
    } catch (error) {
      if (!this.#troubled) this.#onTrouble(error)
      this.#troubled = true
      if (!this.#isClosed) this.#saveAgain()
    } finally {
      this.#saving = null
    }
  }

  #saveAgain(): void {
    clearTimeout(this.#retryTimer)
    this.#retryTimer = setTimeout(() => void this.#save(), this.#delayMS).unref()
    this.#delayMS = Math.min(2 * this.#delayMS, checkMS)
  }
}
