import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Binary, type ClientSession, type Document, Long } from 'mongodb'
import { metadataDatabase } from '../domain/namespace.ts'
import type { Cluster } from './cluster.ts'
import { code, codeOf, isTransient, TransientReplyError } from './errors.ts'
import { statementCount } from './raw-values.ts'

/**
 * A write that this process has given up may still reach the server: it lies in a proxy, or on a network that is slow. So each write
 * under a lease goes with the server's own session (`lsid`) and a number (`txnNumber`) that only rises there: once the server has seen
 * a higher one, it refuses the older write (TransactionTooOld). A session has one write under way at a time. When the outcome of a
 * write is unknown, its session is closed up to the number before anything is sent again; who takes over a lease closes all
 * sessions of its former holders, whose ids follow from the lease.
 * https://github.com/mongodb/specifications/blob/master/source/retryable-writes/retryable-writes.md
 */

/** Of a lease, as it stores them. */
export interface LeaseSessions {
  /** Random, of this lease and no other of its name: one that was removed, and taken anew, counts from the beginning. */
  base: string
  /** More than any holder has writes under way. */
  count: number
}

const sessionCount = 32

/** What a holder stores, whatever he found: enough for all former holders, who may have had more. */
export function sessionsFor(found: LeaseSessions | null): LeaseSessions {
  return { base: found?.base ?? randomBytes(8).toString('hex'), count: Math.max(found?.count ?? 0, sessionCount) }
}

const retryMS = 50

interface NumberedSession {
  readonly index: number
  readonly session: ClientSession
  /** The last that was sent. */
  number: bigint
  isInUse: boolean
  /** A write of unknown outcome went with its number, and nothing higher has been acknowledged since. */
  isOpen: boolean
  /** Under way. */
  closing: Promise<void> | null
}

/** One write's place in a session. */
export interface NumberedWrite {
  session: ClientSession
  fields: Document
  /** Resolves when the server refuses this write from now on; or, where that cannot be had, leaves it to whoever writes next. */
  close(): Promise<void>
  /** Of the write when the session was closed up to a higher number by others: they have taken the lease. */
  refused(): Error
  /** The session is free for another write. */
  end(): void
}

export class WriteSessions {
  readonly #cluster: Cluster
  readonly #incarnation: string
  readonly #epoch: () => number
  readonly #onRefused: () => void
  #all: NumberedSession[] = []
  #free: NumberedSession[] = []
  #base = ''
  readonly #waiting: (() => void)[] = []

  /** @param onRefused others have taken the lease */
  constructor(cluster: Cluster, incarnation: string, epoch: () => number, onRefused: () => void) {
    this.#cluster = cluster
    this.#incarnation = incarnation
    this.#epoch = epoch
    this.#onRefused = onRefused
  }

  /** What went with any number may still arrive: a successor has to close the sessions. */
  get areOpen(): boolean {
    return this.#all.some(({ isInUse, isOpen }) => isInUse || isOpen)
  }

  /**
   * Waits for a free session. Null for a command that carries no number. Rejects while a session that another write left open cannot
   * be closed: what it left may be an older state of the same documents.
   */
  async begin(command: Document): Promise<NumberedWrite | null> {
    for (;;) {
      await Promise.all(this.#all.filter(({ isInUse, isOpen }) => isOpen && !isInUse).map((one) => this.#close(one)))
      const fields = this.#cluster.sharded ? null : statementFields(command, this.#cluster.takesUnrecorded)
      if (!fields) return null
      const taken = this.#free.pop()
      if (taken) return this.#use(taken, fields)
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  #use(taken: NumberedSession, fields: Document): NumberedWrite {
    taken.isInUse = true
    return {
      session: taken.session,
      fields: { ...fields, txnNumber: this.#next(taken) },
      close: () => this.#closeAtLast(taken),
      refused: () => {
        this.#onRefused()
        return new TransientReplyError('another instance has taken the lease over', code.transactionTooOld)
      },
      end: () => {
        taken.isInUse = false
        this.#release(taken)
      },
    }
  }

  #release(one: NumberedSession): void {
    if (one.isInUse || one.isOpen || this.#free.includes(one) || !this.#all.includes(one)) return
    this.#free.push(one)
    this.#waiting.shift()?.()
  }

  #next(one: NumberedSession): Long {
    const first = numberBefore(this.#epoch())
    if (one.number < first) one.number = first
    one.number += 1n
    return Long.fromBigInt(one.number)
  }

  async #closeAtLast(one: NumberedSession): Promise<void> {
    one.isOpen = true
    while (one.isOpen && !this.#cluster.stopped?.aborted && this.#mayWrite()) {
      try {
        return await this.#close(one)
      } catch (error) {
        if (!isTransient(error)) return
        await sleep(retryMS)
      }
    }
  }

  /** One attempt at a time: of two, the one that is refused does not know whether the other will last. */
  #close(one: NumberedSession): Promise<void> {
    one.closing ??= this.#tryToClose(one).finally(() => {
      one.closing = null
    })
    return one.closing
  }

  async #tryToClose(one: NumberedSession): Promise<void> {
    await sendClosing(this.#cluster, one.session, one.index, this.#next(one))
    one.isOpen = false
    this.#release(one)
  }

  #mayWrite(): boolean {
    try {
      this.#cluster.fence()
      return true
    } catch {
      return false
    }
  }

  /** A life begins: all sessions are closed up to its first number. */
  renewed({ base, count }: LeaseSessions): void {
    if (base !== this.#base) {
      this.#base = base
      this.#all = openSessions(this.#cluster, base, this.#incarnation, count).map((session, index) => {
        return { index, session, number: 0n, isInUse: false, isOpen: false, closing: null }
      })
      this.#free = this.#all.toReversed()
    }
    for (const one of this.#all) {
      one.isOpen = false
      this.#release(one)
    }
    for (const wake of this.#waiting.splice(0)) wake()
  }
}

/** Resolves when the server refuses every write that one of these processes sent under this lease in a life before `epoch`. */
export async function closeSessions(
  cluster: Cluster,
  { base, count }: LeaseSessions,
  incarnations: readonly string[],
  epoch: number,
): Promise<void> {
  const number = Long.fromBigInt(numberBefore(epoch))
  for (const incarnation of incarnations) {
    const sessions = openSessions(cluster, base, incarnation, count)
    await Promise.all(sessions.map((session, index) => sendClosing(cluster, session, index, number)))
  }
}

/** Above every number of the lives before. */
function numberBefore(epoch: number): bigint {
  return BigInt(epoch) << 32n
}

/** Any write that leaves a record of its session will do; this one is never read. It waits for a write that is under way in the session. */
async function sendClosing(cluster: Cluster, session: ClientSession, index: number, txnNumber: Long): Promise<void> {
  const updates = [{ q: { _id: index }, u: { $inc: { closed: 1 }, $set: { schemaVersion: 1 } }, upsert: true }]
  try {
    const reply = await cluster.write(
      metadataDatabase,
      { update: 'fences', updates, txnNumber },
      { unfenced: true, session },
    )
    const [failed] = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
    if (failed) throw new TransientReplyError(`a session could not be closed: ${failed.errmsg}`, failed.code)
  } catch (error) {
    // Others have closed it up to a later life's number, and see to it that it lasts.
    if (codeOf(error) !== code.transactionTooOld) throw error
  }
}

/** What they have in common with any session of the driver. */
const prototypes = new WeakMap<Cluster, ClientSession>()

/** Of the process that had this lease; whoever knows that much has them, too. Not the driver's own, which it would use for anything. */
function openSessions(cluster: Cluster, base: string, incarnation: string, count: number): ClientSession[] {
  const prototype = prototypes.get(cluster) ?? cluster.startSession()
  prototypes.set(cluster, prototype)
  return Array.from({ length: count }, (_, index) => {
    const hash = createHash('sha256').update(`${base} ${incarnation} ${index}`).digest()
    const id = { id: new Binary(hash.subarray(0, 16), Binary.SUBTYPE_UUID) }
    const serverSession = { id, lastUse: 0, txnNumber: 0, isDirty: false }
    return Object.create(prototype, { serverSession: { value: serverSession } }) as ClientSession
  })
}

/**
 * What the statements of a command need to go with a number; null where they cannot. For each that has a number of its own the server
 * writes a record, which costs it half as much again as a replacement itself. With -1 it writes none; the number of the whole command
 * it checks all the same, and only what closes a session must leave a record. That is how the server is made (`kUninitializedStmtId`
 * in src/mongo/db/op_observer/op_observer_impl.cpp), not how it is documented, so it is done only on the release where it was measured.
 */
function statementFields(command: Document, takesUnrecorded: boolean): Document | null {
  const { insert, update, delete: removal, findAndModify } = command
  if (findAndModify !== undefined) return takesUnrecorded ? { stmtId: -1 } : null
  if ((insert ?? update ?? removal) === undefined) return null
  const statements: unknown = command['documents'] ?? command['updates'] ?? command['deletes']
  if (takesUnrecorded) return { stmtIds: new Array(statementCount(statements)).fill(-1) }
  const isOne = (statement: Document): boolean => !statement['multi'] && statement['limit'] !== 0
  return insert !== undefined || !Array.isArray(statements) || statements.every(isOne) ? {} : null
}
