import { type Document, type Long, MongoNetworkError, MongoNetworkTimeoutError } from 'mongodb'
import type { Random } from '../support/random.ts'
import type { Clock, Host } from './clock.ts'
import type { Awaiting, Server } from './server.ts'
import { StoredCollection } from './stored-collection.ts'
import { serverError } from './wire.ts'

/** The process that sends a command, with its lease term at that time. */
export interface Sender {
  host: Host
  appName: string
  /** Owner token of its lease when the message was written; null without a lease. */
  token: string | null
}

interface Operation {
  sender: Sender
  fenced: boolean
  shown: Document
  end: (fails: Error | null) => void
}

export interface Message {
  sender: Sender
  where: string
  command: Document
  comment: string
  /** Id of the server session if the command carries a transaction number; otherwise null. */
  session: string | null
  raw: boolean
  limitMS: number
}

/** Callbacks through which the outcome of a message reaches its sender. */
export interface ReplyPath {
  deliver: (delayMS: number, complete: () => void) => void
  answer: (complete: () => void) => void
  resolve: (reply: Document) => void
  reject: (error: unknown) => void
}

/** A server session. It executes one command at a time and rejects a transaction number below the newest it has received. */
interface Session {
  number: bigint
  /** An uncommitted transaction: its command and the reply to it. */
  transaction: { message: Message; reply: Document } | null
  isBusy: boolean
  waiting: (() => void)[]
}

const notPrimary = 10107
const transactionTooOld = 225
const noSuchTransaction = 251
const writeConflict = 112
const opNames: Record<string, string> = {
  insert: 'insert',
  update: 'update',
  delete: 'remove',
  find: 'query',
  getMore: 'getmore',
}

/** The operations that one cluster is executing, in the server sessions of their senders. */
export class Operations {
  /** The cluster has no primary until this time. */
  electionUntil = 0
  /** Probability that a write takes seconds on the server. */
  stuckChance = 0
  /** Whether reads for plans and of ranges may take up to two seconds, as with large documents. */
  readsSlowly = false
  /** For mutations: false if operations in progress are never shown by `$currentOp`. */
  showsOperations = true
  /** For mutations: changes the transaction number that a server receives. */
  alterNumber = (number: bigint): bigint => number
  readonly #server: Server
  readonly #clock: Clock
  readonly #random: Random
  readonly #active = new Set<Operation>()
  readonly #sessions = new Map<string, Session>()
  readonly #shown = new StoredCollection(() => 0)

  constructor(server: Server, clock: Clock, random: Random) {
    this.#server = server
    this.#clock = clock
    this.#random = random
  }

  heal(): void {
    this.electionUntil = 0
    this.stuckChance = 0
  }

  /** Steps the primary down. Operations in progress may or may not have taken effect; their senders only get an error. */
  elect(milliseconds: number): void {
    this.electionUntil = this.#clock.now + milliseconds
    this.#server.forgetCursors()
    for (const session of this.#sessions.values()) session.transaction = null
    for (const operation of [...this.#active]) {
      operation.end(
        this.#random.chance(0.5)
          ? serverError(notPrimary, 'not primary')
          : new MongoNetworkError('the primary stepped down'),
      )
    }
  }

  /** Whether the server is executing a fenced write of a matching sender. */
  isWriting(isOf: (sender: Sender) => boolean): boolean {
    for (const { sender, fenced } of this.#active) if (fenced && isOf(sender)) return true
    return false
  }

  /** Executes the command of a message that has reached the server. */
  receive(message: Message, replyPath: ReplyPath): void {
    const { sender, command, comment, limitMS } = message
    const { deliver, answer, resolve, reject } = replyPath
    if (this.electionUntil > this.#clock.now) {
      answer(() => reject(serverError(notPrimary, 'not primary')))
      return
    }
    if (command['pipeline']?.[0]?.$currentOp) {
      const found = this.#running(command['pipeline'][1].$match)
      answer(() => resolve({ ok: 1, cursor: { id: 0, ns: 'admin.none', firstBatch: found } }))
      return
    }
    const [verb] = Object.keys(command) as [string]
    const writes = isWrite(command)
    const shown = {
      active: true,
      appName: sender.appName,
      op: opNames[verb] ?? 'command',
      'command.comment': comment,
    }
    const session = this.#session(message)
    let ended = false
    let hasStarted = false
    const takeEffect = (): void => {
      let reply: Document | Awaiting
      try {
        reply = this.#execute(message, session)
      } catch (error) {
        answer(() => reject(error))
        return
      }
      if ('cursor' in reply && 'patienceMS' in reply) this.#await(reply as Awaiting, { answer, resolve, reject })
      else if (this.readsSlowly && isBulkRead(command) && this.#random.chance(0.3)) {
        this.#clock.after(this.#random.int(50, 2_000), null, () => answer(() => resolve(reply)), false)
      } else answer(() => resolve(reply))
    }
    const operation: Operation = {
      sender,
      fenced: writes && typeof command['comment'] === 'object',
      shown,
      end: (fails) => {
        if (ended) return
        ended = true
        this.#active.delete(operation)
        if (!fails) takeEffect()
        else {
          // After a network error the sender does not know whether the write took effect.
          if (hasStarted && fails instanceof MongoNetworkError && writes && this.#random.chance(0.5)) {
            try {
              this.#execute(message, session)
            } catch {}
          }
          answer(() => reject(fails))
        }
        if (session && hasStarted) this.#leave(session)
      },
    }
    this.#active.add(operation)
    const begin = (): void => {
      if (ended) {
        if (session) this.#leave(session)
        return
      }
      hasStarted = true
      const number = this.alterNumber((command['txnNumber'] as Long | undefined)?.toBigInt() ?? 0n)
      if (session && number < session.number) {
        operation.end(serverError(transactionTooOld, 'a newer retryable write has already started on this session'))
        return
      }
      if (session && number > session.number) Object.assign(session, { number, transaction: null })
      const stuck = writes && this.stuckChance > 0 && this.#random.chance(this.stuckChance)
      const durationMS = stuck ? this.#random.int(1_000, 24_000) : 0.1 + this.#random.fraction()
      if (durationMS > limitMS) deliver(limitMS, () => reject(new MongoNetworkTimeoutError('no answer in time')))
      this.#clock.after(durationMS, null, () => operation.end(null), false)
    }
    if (!session?.isBusy) {
      if (session) session.isBusy = true
      begin()
      return
    }
    if (Number.isFinite(limitMS)) deliver(limitMS, () => reject(new MongoNetworkTimeoutError('no answer in time')))
    session.waiting.push(begin)
  }

  /** Executes a command. A transaction takes effect at its commit, which fails if the reply to its statements would now be different. */
  #execute(message: Message, session: Session | null): Document | Awaiting {
    const { sender, where, command, raw } = message
    if (!command['commitTransaction']) {
      const reply = this.#server.execute(sender, where, command, raw)
      if (session && command['startTransaction']) session.transaction = { message, reply }
      return reply
    }
    const transaction = session?.transaction
    if (!transaction) throw serverError(noSuchTransaction, 'no such transaction')
    session.transaction = null
    const { where: target, command: statements } = transaction.message
    const { n, writeErrors } = this.#server.execute(sender, target, statements, false) as Document
    if (n !== transaction.reply['n'] || writeErrors || transaction.reply['writeErrors'])
      throw serverError(writeConflict, 'write conflict')
    return this.#server.execute(sender, target, { ...statements, startTransaction: false }, false)
  }

  #session({ session: id }: Message): Session | null {
    if (id === null) return null
    const known = this.#sessions.get(id) ?? { number: 0n, transaction: null, isBusy: false, waiting: [] }
    this.#sessions.set(id, known)
    return known
  }

  #leave(session: Session): void {
    const next = session.waiting.shift()
    if (next) next()
    else session.isBusy = false
  }

  #await(awaiting: Awaiting, { answer, resolve, reject }: Omit<ReplyPath, 'deliver'>): void {
    const deliver = (): void => {
      if (awaiting.cursor.awaiting !== deliver) return
      awaiting.cursor.awaiting = null
      try {
        const reply = this.#server.answer(awaiting)
        answer(() => resolve(reply))
      } catch (error) {
        answer(() => reject(error))
      }
    }
    awaiting.cursor.awaiting = deliver
    this.#clock.after(awaiting.patienceMS, null, deliver, false)
  }

  #running(match: Document): Document[] {
    if (!this.showsOperations) return []
    return [...this.#active]
      .map(({ shown }) => shown)
      .filter((shown) => this.#shown.matches(shown, match))
      .slice(0, 1)
  }
}

export function isWrite(command: Document): boolean {
  return command['writeConcern'] !== undefined || command['startTransaction'] === true
}

/** Returns whether the command is a read for a plan or of a range of documents. */
function isBulkRead(command: Document): boolean {
  const [stage] = (command['pipeline'] ?? []) as Document[]
  const isOfPlan = stage?.['$sample'] !== undefined || stage?.['$collStats'] !== undefined
  return isOfPlan || command['hint'] !== undefined || String(command['collection'] ?? '').startsWith('things')
}
