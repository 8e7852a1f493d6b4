import type { Document } from 'mongodb'
import type { Cluster, CommandOptions } from './cluster.ts'
import {
  code,
  codeOf,
  hasAborted,
  hasNotCommitted,
  isTransient,
  isTransientCode,
  mayBeUnderWay,
  mayStillRun,
  TransientReplyError,
} from './errors.ts'
import { CheckedText } from './raw-values.ts'
import type { NumberedWrite } from './write-sessions.ts'

/**
 * The server's time limit of a write, in ms. It is shorter than the client's default limit, so that a write with the
 * default limit does not continue on the server after the client has given up on it.
 */
export const writeLimitMS = 25_000

/** Sends writes to a cluster under the cluster's fence, and waits for the end of those whose outcome is unknown. */
export class ClusterWriter {
  readonly #cluster: Cluster
  readonly #appName: string
  /** Number of writes so far, which makes the comment of each write unique. */
  #writes = 0

  constructor(cluster: Cluster, appName: string) {
    this.#cluster = cluster
    this.#appName = appName
  }

  /**
   * Sends the command as a transaction of its own where the server accepts that, and otherwise as a retryable write or
   * a plain one. A plain write begins only after the server has closed the transaction.
   */
  async write(database: string, command: Document, options: CommandOptions): Promise<Document> {
    if (options.unfenced) return await this.#send(database, command, options)
    try {
      this.#cluster.fence()
      const numbered = (await this.#cluster.sessions?.begin(command)) ?? null
      if (!numbered) return await this.#send(database, command, options)
      try {
        const reply = numbered.forms.transaction ? await this.#transact(database, command, options, numbered) : null
        if (reply) return reply
        if (!numbered.forms.retryable) {
          // A plain write does not abort the transaction, and would wait for its locks.
          if (!(await numbered.close())) throw new TransientReplyError('a transaction could not be closed')
          return await this.#send(database, command, options)
        }
        return await this.#send(database, command, options, numbered, { txnNumber: numbered.next() })
      } finally {
        numbered.end()
      }
    } catch (error) {
      throw this.#cluster.named(error, database, command)
    }
  }

  /**
   * Sends the command as a transaction of its own. Returns null when the server has aborted it, so that none of its
   * statements took effect. The server aborts a transaction that writes to a capped collection, in which a statement
   * fails, or that does not get a lock within 5 ms (`maxTransactionLockRequestTimeoutMillis`).
   * https://www.mongodb.com/docs/manual/core/transactions-production-consideration/
   */
  async #transact(
    database: string,
    command: Document,
    options: CommandOptions,
    numbered: NumberedWrite,
  ): Promise<Document | null> {
    const txnNumber = numbered.next()
    let isCommitting = false
    try {
      const start = { txnNumber, startTransaction: true, autocommit: false }
      const reply = await this.#send(database, command, options, numbered, start)
      if (reply['writeErrors']) return null
      isCommitting = true
      await this.#send('admin', { commitTransaction: 1 }, options, numbered, { txnNumber, autocommit: false })
      return reply
    } catch (error) {
      const isAborted = isCommitting ? hasNotCommitted(error) : hasAborted(error, this.#cluster.sharded)
      // The next form of a command that is not retryable is a plain write, which has no number to protect it. After a
      // transient error the whole command is retried instead, because a second transaction may succeed.
      if (isAborted && (numbered.forms.retryable || !isTransient(error))) return null
      numbered.leaveOpen(txnNumber)
      if (isAborted || !isCommitting || isTransient(error)) throw error
      throw new TransientReplyError(`a transaction's outcome is unknown: ${String(error)}`, codeOf(error))
    }
  }

  /** @param fields the fields that make the command a numbered write */
  async #send(
    database: string,
    command: Document,
    options: CommandOptions,
    numbered: NumberedWrite | null = null,
    fields: Document = {},
  ): Promise<Document> {
    this.#writes += 1
    const comment = `${this.#appName}:${this.#writes}`
    let isSent = false
    // The lease may be lost between this call and the moment at which the message is written.
    const check = (): void => {
      this.#cluster.fence()
      isSent = true
    }
    const sent = {
      ...command,
      ...fields,
      comment: options.unfenced ? comment : new CheckedText(comment, check),
      // The commit carries the write concern of a transaction.
      ...(fields['startTransaction'] || options.withoutWriteConcern ? {} : { writeConcern: { w: 'majority' } }),
      ...(options.timeoutMS === 0 ? {} : { maxTimeMS: writeLimitMS }),
      ...(this.#cluster.writesCarryBypass ? { mayBypassWriteBlocking: true } : {}),
    }
    const given = numbered ? { ...options, session: numbered.session } : options
    const drained = () => this.#drained(comment, isSent ? numbered : null)
    const reply = await this.#cluster.run(database, sent, given).catch(async (error) => {
      if (!options.unfenced && mayBeUnderWay(error, this.#cluster.sharded)) await drained()
      throw numbered && codeOf(error) === code.transactionTooOld ? numbered.refused() : error
    })
    const errors = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
    if (!options.unfenced && errors.some((error) => mayStillRun(error.code, this.#cluster.sharded))) await drained()
    const transient = errors.find((error) => isTransientCode(error.code))
    if (!transient) return reply
    throw this.#cluster.named(
      new TransientReplyError(`a statement failed with a transient error: ${transient.errmsg}`, transient.code),
      database,
      command,
    )
  }

  /**
   * Waits for the end of a write of unknown outcome. The server may still run it or receive it later, so it could take
   * effect after its own retry. Resolves when no operation with this comment runs on the server or its time limit has
   * passed, and the server rejects the number of the write.
   */
  async #drained(comment: string, numbered: NumberedWrite | null): Promise<void> {
    const key = Symbol(comment)
    this.#cluster.monitor?.begin(key, 'waiting for a write of unknown outcome to end')
    try {
      await this.#cluster.idle({ 'command.comment': comment })
      await numbered?.close()
    } finally {
      this.#cluster.monitor?.end(key)
    }
  }
}
