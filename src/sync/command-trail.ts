import { randomUUID } from 'node:crypto'
import { type AuditEntry, auditEntriesMax } from '../domain/audit-entry.ts'
import type { AuditStore, StoredEntry } from '../mongo/audit-store.ts'

/** How often what could not be stored is tried again, and a reversal is noticed. */
const saveAgainMS = 5_000

/**
 * Who sent which command to this instance. Kept in memory until there is a sync, and then with it on the destination.
 * Nobody ever waits for that: a command is answered whether or not its entry can be stored.
 */
export class CommandTrail {
  readonly #store: () => AuditStore | null
  readonly #onTrouble: (error: unknown) => void
  /** Of this process, oldest first: a reversal moves what is stored while commands go on coming. */
  #kept: StoredEntry[] = []
  #unsaved: StoredEntry[] = []
  /** Where all of `#kept` but `#unsaved` is. */
  #savedIn: AuditStore | null = null
  #saving = false
  /** It was told, and nothing was stored since. */
  #troubled = false
  readonly #timer: NodeJS.Timeout

  /** `onTrouble` is told once when entries cannot be stored, and again after they could be. */
  constructor(store: () => AuditStore | null, onTrouble: (error: unknown) => void) {
    this.#store = store
    this.#onTrouble = onTrouble
    this.#timer = setInterval(() => void this.#save(), saveAgainMS).unref()
  }

  add(entry: AuditEntry): void {
    const kept = { id: randomUUID(), ...entry }
    this.#kept = [...this.#kept, kept].slice(-auditEntriesMax)
    this.#unsaved = [...this.#unsaved, kept].slice(-auditEntriesMax)
    void this.#save()
  }

  /** The newest first: of all instances, when there is a sync and its destination answers. */
  async read(): Promise<AuditEntry[]> {
    const stored = (await this.#store()?.read()) ?? []
    const all = new Map([...stored, ...this.#kept].map((entry) => [entry.id, entry]))
    const newestFirst = [...all.values()].sort((one, other) => (one.time < other.time ? 1 : -1))
    return newestFirst.slice(0, auditEntriesMax).map(({ id: _id, ...entry }) => entry)
  }

  close(): void {
    clearInterval(this.#timer)
  }

  async #save(): Promise<void> {
    if (this.#saving) return
    this.#saving = true
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
      this.#saving = false
    }
  }
}
