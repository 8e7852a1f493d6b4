import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Binary, type ClientSession, type Document, Long } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { code, codeOf, isTransient, isTransientCode, TransientReplyError } from './errors.ts'
import { type NumberedForms, numberedForms } from './numbered-forms.ts'

/**
 * A write for which this process no longer waits may still reach the server, because a proxy or a slow network may delay
 * it. On a replica set, a write of documents under a lease therefore carries a session (`lsid`) and a number
 * (`txnNumber`) that only increases within that session (exceptions: `numberedForms`, `ClusterWriter.write`). Once the
 * server has received a higher number, it rejects the delayed write (TransactionTooOld). A session carries one write at
 * a time. When the outcome of a write is unknown, its session is closed with a higher number before anything is sent
 * again. An instance that takes over or evicts a lease closes all sessions of the former holders. It knows their ids,
 * because the ids derive from the lease and from the processes that held it.
 * https://github.com/mongodb/specifications/blob/master/source/retryable-writes/retryable-writes.md
 */

/** The part of a lease document from which the ids of its sessions are derived. */
export interface LeaseSessions {
  /** A random text. A lease that is removed and created again gets another base, because its epochs begin again. */
  base: string
  /** The largest number of sessions that any holder may have used. */
  count: number
}

/** Number of sessions of a new lease, which limits its numbered writes in flight. Further writes wait for a free session. */
export const sessionsPerLease = 32

/**
 * Returns what a new holder stores in the lease. The count never decreases, because a former holder may have used more
 * sessions.
 */
export function sessionsFor(found: LeaseSessions | null): LeaseSessions {
  return { base: found?.base ?? randomBytes(8).toString('hex'), count: Math.max(found?.count ?? 0, sessionsPerLease) }
}

/** Pause between two attempts to close a session, in ms. */
const retryMS = 50
/** A write gives up closing its session after this time (ms). The next write of any session then closes the session. */
const closeLimitMS = 28_000

interface NumberedSession {
  readonly index: number
  readonly session: ClientSession
  /** The last number that was sent. */
  number: bigint
  isInUse: boolean
  /** True if a write of unknown outcome was sent, and the server has not acknowledged a higher number yet. */
  isOpen: boolean
  /** The attempt to close the session that is in progress; null if there is none. */
  closing: Promise<void> | null
}

/** One write that has a session for itself until `end` is called. */
export interface NumberedWrite {
  readonly session: ClientSession
  readonly forms: NumberedForms
  /** The next number of this session. Each attempt takes its own. */
  next(): Long
  /**
   * Closes the session. Resolves with true when the server rejects this write from now on. Resolves with false if the
   * session could not be closed. It then stays open, and the next write of any session closes it first.
   */
  close(): Promise<boolean>
  /**
   * Marks the session as open, because the write with this number may still take effect. Does nothing if the session has
   * sent a higher number since. Unless `close` closes the session, the next write of any session does.
   */
  leaveOpen(number: Long): void
  /**
   * Called when the server has rejected a write because another instance has taken the lease and closed the session.
   * Returns the error for that write.
   */
  refused(): Error
  /** Gives the session back. */
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

  /**
   * @param incarnation the id of this process among all that have held the lease
   * @param epoch returns the epoch of the current lease term
   * @param onRefused called when another instance has taken the lease
   */
  constructor(cluster: Cluster, incarnation: string, epoch: () => number, onRefused: () => void) {
    this.#cluster = cluster
    this.#incarnation = incarnation
    this.#epoch = epoch
    this.#onRefused = onRefused
  }

  /** True while a write of this process may still reach the server. The successor must then close the sessions. */
  get areOpen(): boolean {
    return this.#all.some(({ isInUse, isOpen }) => isInUse || isOpen)
  }

  /**
   * Waits for a free session. Returns null for a command that carries no number, and on a sharded cluster. Rejects when a
   * session that another write left open cannot be closed, because that write may contain an older version of the same
   * documents.
   */
  async begin(command: Document): Promise<NumberedWrite | null> {
    for (;;) {
      try {
        await this.closeOpen()
      } catch (error) {
        // This write takes no session and therefore releases none. The next waiting write is woken here, because it would
        // otherwise wait forever.
        this.#waiting.shift()?.()
        throw error
      }
      const forms = this.#cluster.sharded ? null : numberedForms(command)
      if (!forms) return null
      const taken = this.#free.pop()
      if (taken) return this.#use(taken, forms)
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  /**
   * Resolves when the server rejects every write whose outcome is unknown and for which no caller waits. Rejects when a
   * session cannot be closed, for example because the server cannot be reached.
   */
  async closeOpen(): Promise<void> {
    for (;;) {
      const open = this.#all.filter(({ isInUse, isOpen }) => isOpen && !isInUse)
      if (open.length === 0) return
      const closed = await Promise.allSettled(open.map((one) => this.#close(one)))
      for (const one of closed) if (one.status === 'rejected') throw one.reason
    }
  }

  #use(taken: NumberedSession, forms: NumberedForms): NumberedWrite {
    taken.isInUse = true
    return {
      session: taken.session,
      forms,
      next: () => this.#next(taken),
      close: () => this.#closeWithRetries(taken),
      leaveOpen: (number) => {
        if (taken.number === number.toBigInt()) taken.isOpen = true
      },
      refused: () => {
        this.#onRefused()
        return new TransientReplyError('another instance has taken over the lease', code.transactionTooOld)
      },
      end: () => {
        taken.isInUse = false
        this.#release(taken)
      },
    }
  }

  #release(one: NumberedSession): void {
    if (one.isInUse || one.isOpen || this.#free.includes(one) || !this.#all.includes(one)) {
      // A waiting write continues with an open session, because it closes the session itself (`begin`).
      if (one.isOpen && !one.isInUse) this.#waiting.shift()?.()
      return
    }
    this.#free.push(one)
    this.#waiting.shift()?.()
  }

  #next(one: NumberedSession): Long {
    const first = numberBefore(this.#epoch())
    if (one.number < first) one.number = first
    one.number += 1n
    // The driver puts this number into `commitTransaction`.
    Object.assign(one.session.serverSession, { txnNumber: Number(one.number) })
    return Long.fromBigInt(one.number)
  }

  async #closeWithRetries(one: NumberedSession): Promise<boolean> {
    one.isOpen = true
    const until = performance.now() + closeLimitMS
    while (one.isOpen && performance.now() < until && !this.#cluster.stopped?.aborted && this.#mayWrite()) {
      try {
        await this.#close(one)
      } catch (error) {
        if (!isTransient(error)) break
        await sleep(retryMS)
      }
    }
    return !one.isOpen
  }

  /**
   * Only one attempt runs at a time. Of two attempts, the server could reject one because of the higher number of the
   * other. The rejected attempt would not know whether the closing write of the other is durable.
   */
  #close(one: NumberedSession): Promise<void> {
    one.closing ??= this.#tryToClose(one).finally(() => {
      one.closing = null
    })
    return one.closing
  }

  async #tryToClose(one: NumberedSession): Promise<void> {
    const number = this.#next(one)
    await sendClosing(this.#cluster, one.session, one.index, number)
    // In the meantime, the session may have been used in a later lease term.
    if (one.number !== number.toBigInt()) return
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

  /** Called when a new lease term begins, after `closeSessions` has closed the sessions of the earlier terms. */
  beginTerm({ base, count }: LeaseSessions): void {
    if (base !== this.#base) {
      this.#base = base
      this.#all = derivedSessions(this.#cluster, base, this.#incarnation, count).map((session, index) => {
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

/** Resolves when the server rejects every numbered write that any of these processes sent under this lease before `epoch`. */
export async function closeSessions(
  cluster: Cluster,
  { base, count }: LeaseSessions,
  incarnations: readonly string[],
  epoch: number,
): Promise<void> {
  const number = Long.fromBigInt(numberBefore(epoch))
  for (const incarnation of incarnations) {
    const sessions = derivedSessions(cluster, base, incarnation, count)
    await Promise.all(sessions.map((session, index) => sendClosing(cluster, session, index, number)))
  }
}

/**
 * Returns a number that is lower than all numbers of this epoch, and higher than all numbers of earlier epochs. It stays
 * below 2^53, the limit of the driver's counter, for two million epochs.
 */
function numberBefore(epoch: number): bigint {
  return BigInt(epoch) << 32n
}

/**
 * Closes a session by a retryable write with this number. Any retryable write works, because it leaves a record of its
 * number that survives a failover. The written document is never read. Before this write, the server waits for a command
 * that is running in the session, and aborts a transaction that is open in it.
 */
async function sendClosing(cluster: Cluster, session: ClientSession, index: number, txnNumber: Long): Promise<void> {
  const updates = [{ q: { _id: index }, u: { $inc: { closed: 1 }, $set: { schemaVersion: 1 } }, upsert: true }]
  try {
    const reply = await cluster.write(
      cluster.metadataDatabase,
      { update: 'fences', updates, txnNumber },
      { unfenced: true, session },
    )
    const [failed] = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
    if (failed && isTransientCode(failed.code))
      throw new TransientReplyError(`a session could not be closed: ${failed.errmsg}`, failed.code)
    if (failed) throw new Error(`a session could not be closed: ${failed.errmsg} (code ${failed.code})`)
  } catch (error) {
    // An instance with a later epoch has already closed the session, and retries until its own closing write is durable.
    if (codeOf(error) !== code.transactionTooOld) throw error
  }
}

/** For each cluster, the driver's session that is the prototype of the numbered sessions. */
const prototypes = new WeakMap<Cluster, ClientSession>()

/**
 * Creates sessions whose ids derive from the lease and the incarnation. The driver's own sessions cannot be used, because
 * they have random ids and are shared.
 */
function derivedSessions(cluster: Cluster, base: string, incarnation: string, count: number): ClientSession[] {
  const prototype = prototypes.get(cluster) ?? cluster.startSession()
  prototypes.set(cluster, prototype)
  return Array.from({ length: count }, (_, index) => {
    const hash = createHash('sha256').update(`${base} ${incarnation} ${index}`).digest()
    const id = { id: new Binary(hash.subarray(0, 16), Binary.SUBTYPE_UUID) }
    const serverSession = { id, lastUse: 0, txnNumber: 0, isDirty: false }
    return Object.create(prototype, { serverSession: { value: serverSession } }) as ClientSession
  })
}
