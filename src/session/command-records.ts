import { randomUUID } from 'node:crypto'
import type { AuditEntry, CommandCall, ReceivedCommand } from '../domain/audit-entry.ts'
import { errorText, unreachableText } from '../domain/error-text.ts'
import { RefusedError } from '../domain/errors.ts'
import type { Journal } from '../domain/journal.ts'
import type { GivenCommand } from '../domain/peer-command.ts'
import type { AuditStore } from '../mongo/audit-store.ts'
import { isTransient } from '../mongo/errors.ts'
import { CommandTrail } from './command-trail.ts'

/** Records the commands of this instance and their outcomes in its log and in the audit trail. */
export class CommandRecords {
  readonly #id: string
  readonly #journal: Journal
  readonly #trail: CommandTrail

  /**
   * @param target `audit` is the store of the current direction, null before the sync exists
   * @param id mongosyncID
   */
  constructor(target: { readonly audit: AuditStore | null }, id: string, journal: Journal) {
    this.#id = id
    this.#journal = journal
    this.#trail = new CommandTrail(target, (error) => journal('audit not stored', { error: errorText(error) }))
  }

  /** Resolves when the command is recorded, or after a second. */
  async received(call: ReceivedCommand): Promise<void> {
    await this.#record({ ...call, outcome: 'received', error: null, mongosyncID: this.#id }, true)
  }

  /** @param admitted false: the command appears in the log only */
  answered(call: CommandCall, admitted: boolean): void {
    void this.#record({ ...call, mongosyncID: this.#id }, admitted)
  }

  /**
   * Records a command from another instance, performs it, and records its outcome. Only then does this method resolve or
   * reject, so the outcome is in the trail before the sender answers its client. However, each record delays the command
   * by no more than a second: if storing takes longer, the outcome appears in the trail later.
   * @param sender the instance that passed the command on; null if the stored command does not name its sender
   */
  async passedOn({ command }: GivenCommand, sender: string | null, perform: () => Promise<void>): Promise<void> {
    const [id, time] = [randomUUID(), new Date().toISOString()]
    const call = { id, time, mongosyncID: this.#id, command, remoteAddress: null, token: null, sender }
    await this.#record({ ...call, outcome: 'received', error: null }, true)
    try {
      await perform()
    } catch (cause) {
      const error = cause instanceof RefusedError ? cause.refusal : 'InternalError'
      await this.#record({ ...call, outcome: 'refused', error }, true)
      throw cause
    }
    await this.#record({ ...call, outcome: 'accepted', error: null }, true)
  }

  /** Returns the entries, newest first. Throws RefusedError ClusterUnreachable when the destination does not answer. */
  async read(): Promise<AuditEntry[]> {
    try {
      return await this.#trail.read()
    } catch (error) {
      if (!isTransient(error)) throw error
      const description = `${unreachableText(error)}, and it stores the audit trail; check that cluster and the network, then try again`
      throw new RefusedError('ClusterUnreachable', description, { cause: error })
    }
  }

  async #record(entry: AuditEntry, admitted: boolean): Promise<void> {
    const { time, mongosyncID: _id, ...rest } = entry
    // A log line has its own time.
    this.#journal('audit', { received: time, ...rest })
    if (admitted) await this.#trail.add(entry)
  }

  /** Ends the audit trail, within a second. */
  async close(): Promise<void> {
    await this.#trail.close()
  }
}
