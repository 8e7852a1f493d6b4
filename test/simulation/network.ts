import {
  type Binary,
  type Document,
  type Long,
  MongoNetworkError,
  MongoNetworkTimeoutError,
  MongoServerSelectionError,
} from 'mongodb'
import type { Random } from '../support/random.ts'
import type { Clock, Host } from './clock.ts'
import type { Awaiting, Server } from './server.ts'
import { StoredCollection } from './stored-collection.ts'
import { serverError } from './wire.ts'

/** Who sends a command: a process, in whichever life it is when it sends. */
export interface Sender {
  host: Host
  appName: string
  /** Its life by its own lease when the message was written; null without one. */
  token: string | null
}

interface Operation {
  sender: Sender
  fenced: boolean
  shown: Document
  end: (fails: Error | null) => void
}

interface Message {
  sender: Sender
  where: string
  command: Document
  comment: string
  /** Of the server's own session, where the command goes with a number. */
  session: string | null
  raw: boolean
  limitMS: number
}

/** The ways in which a message can come to something for whoever sent it. */
interface Return {
  tell: (delayMS: number, settle: () => void) => void
  answer: (settle: () => void) => void
  resolve: (reply: Document) => void
  reject: (error: unknown) => void
}

interface CommandOptions {
  signal?: { timeoutMS: number }
  fieldsAsRaw?: unknown
  session?: { serverSession?: { id: { id: Binary } } }
}

/** One command at a time, and none with a number below one that it has seen. */
interface Session {
  number: bigint
  /** A transaction that has not been committed: its command, and what it was answered. */
  transaction: { message: Message; reply: Document } | null
  isBusy: boolean
  waiting: (() => void)[]
}

const selectionMS = 5_000
const notPrimary = 10107
const transactionTooOld = 225
const noSuchTransaction = 251
const writeConflict = 112
/** How long a message that is held back may be under way. */
const lateMaxMS = 40_000
const opNames: Record<string, string> = {
  insert: 'insert',
  update: 'update',
  delete: 'remove',
  find: 'query',
  getMore: 'getmore',
}

/** The way between the processes and one cluster, and what that cluster works on at the moment. */
export class Network {
  readonly server: Server
  /** No primary until then. */
  electionUntil = 0
  /** How long a command takes at the server, ms; a fault may make some very long. */
  stuckChance = 0
  readonly #clock: Clock
  readonly #random: Random
  readonly #active = new Set<Operation>()
  /** Until when a host cannot reach this cluster, and whether its messages vanish without a word. */
  readonly #cuts = new Map<Host, { until: number; silent: boolean }>()
  /** Until when what a host writes may be held back: it learns that its connection is gone, and the message arrives later. */
  readonly #holds = new Map<Host, number>()
  readonly #sessions = new Map<string, Session>()
  readonly #shown = new StoredCollection(() => 0)
  /** Plans and ranges are read for seconds, as where documents are large. */
  readsSlowly = false
  /** For a mutation of the world: what is under way is never shown. */
  showsOperations = true
  /** The same: what a server makes of a number in a session. */
  alterNumber = (number: bigint): bigint => number

  /** Called when a host sends a plan of the copy, or the end of one. */
  onCopyWrite: (host: Host) => void = () => {}
  /**
   * How a write arrives that is held back: `unnumbered` as all that go through mongos, and `not yet` where it waits for the moment
   * at which it does most harm.
   */
  lateForm: (sender: Sender, command: Document) => 'numbered' | 'unnumbered' | 'not yet' = () => 'numbered'

  constructor(server: Server, clock: Clock, random: Random) {
    this.server = server
    this.#clock = clock
    this.#random = random
  }

  cut(host: Host, milliseconds: number, silent: boolean): void {
    this.#cuts.set(host, { until: this.#clock.now + milliseconds, silent })
  }

  hold(host: Host, milliseconds: number): void {
    this.#holds.set(host, this.#clock.now + milliseconds)
  }

  mend(): void {
    this.#cuts.clear()
    this.#holds.clear()
    this.electionUntil = 0
    this.stuckChance = 0
  }

  /** The primary steps down: what is under way may have taken effect or not, and nobody is told. */
  elect(milliseconds: number): void {
    this.electionUntil = this.#clock.now + milliseconds
    this.server.forgetCursors()
    for (const session of this.#sessions.values()) session.transaction = null
    for (const operation of [...this.#active]) {
      operation.end(
        this.#random.chance(0.5)
          ? serverError(notPrimary, 'not primary')
          : new MongoNetworkError('the primary stepped down'),
      )
    }
  }

  /** The server works on something that only the holder of a lease may write. */
  isWriting(isOf: (sender: Sender) => boolean): boolean {
    for (const { sender, fenced } of this.#active) if (fenced && isOf(sender)) return true
    return false
  }

  /** What stands in the place of the driver's client. */
  client(host: Host, appName: string, token: () => string | null): object {
    return {
      db: (where: string) => ({
        command: (command: Document, options: CommandOptions) =>
          this.#send(host, appName, token, where, command, options),
      }),
      startSession: () => ({ advanceClusterTime: () => {}, endSession: async () => {} }),
      close: async () => {},
    }
  }

  #isCut(host: Host): boolean {
    return (this.#cuts.get(host)?.until ?? 0) > this.#clock.now
  }

  /** What cannot carry a number, and is fenced by it alone, is left out: definitions. */
  #isHeld({ sender, command, session }: Message): boolean {
    if ((this.#holds.get(sender.host) ?? 0) <= this.#clock.now || !isWrite(command)) return false
    const isFenced = typeof command['comment'] === 'object'
    return (session !== null || !isFenced) && this.#random.chance(0.5)
  }

  #arriveLate(message: Message, delayMS: number, until: number): void {
    const { sender, command } = message
    const arrive = (): void => {
      const form = this.lateForm(sender, command)
      if (form === 'not yet' && this.#clock.now < until) this.#arriveLate(message, this.#random.int(1, 50), until)
      else this.#arrive(form === 'unnumbered' ? withoutNumber(message) : message, toNobody)
    }
    this.#clock.after(delayMS, null, arrive, false)
  }

  #latency(): number {
    return this.#random.chance(0.02) ? this.#random.int(5, 80) : 0.2 + this.#random.fraction()
  }

  #send(
    host: Host,
    appName: string,
    token: () => string | null,
    where: string,
    command: Document,
    { signal, fieldsAsRaw, session }: CommandOptions,
  ): Promise<Document> {
    return new Promise((resolve, reject) => {
      const sentAt = this.#clock.now
      const limitMS = signal?.timeoutMS ?? Number.POSITIVE_INFINITY
      let over = false
      const tell = (delayMS: number, settle: () => void): void => {
        this.#clock.after(delayMS, host, () => {
          if (over) return
          over = true
          settle()
        })
      }
      const lost = (): void => {
        const silent = this.#cuts.get(host)?.silent === true
        if (!silent) tell(this.#latency(), () => reject(new MongoNetworkError('connection reset')))
        else if (Number.isFinite(limitMS)) {
          tell(sentAt + limitMS - this.#clock.now, () => reject(new MongoNetworkTimeoutError('no answer')))
        } else tell(60_000, () => reject(new MongoNetworkError('keep-alive found the connection dead')))
      }
      const answer = (settle: () => void): void => {
        if (this.#isCut(host)) lost()
        else tell(this.#latency(), settle)
      }
      const write = (): void => {
        let comment: string
        try {
          comment = writeComment(command['comment'])
        } catch (error) {
          reject(error)
          return
        }
        const message = {
          sender: { host, appName, token: token() },
          where,
          command,
          comment,
          session: command['txnNumber'] ? (session?.serverSession?.id.id.toString('hex') ?? null) : null,
          raw: fieldsAsRaw !== undefined,
          limitMS,
        }
        if (isOfCopy(command)) this.onCopyWrite(host)
        if (this.#isHeld(message)) {
          tell(this.#random.int(50, 2_000), () => reject(new MongoNetworkError('connection reset')))
          this.#arriveLate(message, this.#random.int(500, lateMaxMS), this.#clock.now + lateMaxMS)
          return
        }
        const arrive = (): void =>
          this.#isCut(host) ? lost() : this.#arrive(message, { tell, answer, resolve, reject })
        this.#clock.after(this.#latency(), null, arrive, false)
      }
      if (!this.#isCut(host)) return write()
      const cut = this.#cuts.get(host) as { until: number; silent: boolean }
      if (cut.silent) return lost()
      const leftMS = cut.until - this.#clock.now
      if (leftMS < selectionMS) this.#clock.after(leftMS, host, write)
      else tell(selectionMS, () => reject(new MongoServerSelectionError('no server', {} as never)))
    })
  }

  #arrive(message: Message, way: Return): void {
    const { sender, command, comment, limitMS } = message
    const { tell, answer, resolve, reject } = way
    if (this.electionUntil > this.#clock.now) {
      answer(() => reject(serverError(notPrimary, 'not primary')))
      return
    }
    if (command['pipeline']?.[0]?.$currentOp) {
      const found = this.#operations(command['pipeline'][1].$match)
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
    let begun = false
    const takeEffect = (): void => {
      let reply: Document | Awaiting
      try {
        reply = this.#carryOut(message, session)
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
          // Broken connections tell nothing of what took effect.
          if (begun && fails instanceof MongoNetworkError && writes && this.#random.chance(0.5)) {
            try {
              this.#carryOut(message, session)
            } catch {}
          }
          answer(() => reject(fails))
        }
        if (session && begun) this.#leave(session)
      },
    }
    this.#active.add(operation)
    const begin = (): void => {
      if (ended) {
        if (session) this.#leave(session)
        return
      }
      begun = true
      const number = this.alterNumber((command['txnNumber'] as Long | undefined)?.toBigInt() ?? 0n)
      if (session && number < session.number) {
        operation.end(serverError(transactionTooOld, 'a newer retryable write has already started on this session'))
        return
      }
      if (session && number > session.number) Object.assign(session, { number, transaction: null })
      const stuck = writes && this.stuckChance > 0 && this.#random.chance(this.stuckChance)
      const durationMS = stuck ? this.#random.int(1_000, 24_000) : 0.1 + this.#random.fraction()
      if (durationMS > limitMS) tell(limitMS, () => reject(new MongoNetworkTimeoutError('no answer in time')))
      this.#clock.after(durationMS, null, () => operation.end(null), false)
    }
    if (!session?.isBusy) {
      if (session) session.isBusy = true
      begin()
      return
    }
    if (Number.isFinite(limitMS)) tell(limitMS, () => reject(new MongoNetworkTimeoutError('no answer in time')))
    session.waiting.push(begin)
  }

  /** A transaction takes effect when it is committed, unless what it was answered is no longer true. */
  #carryOut(message: Message, session: Session | null): Document | Awaiting {
    const { sender, where, command, raw } = message
    if (!command['commitTransaction']) {
      const reply = this.server.execute(sender, where, command, raw)
      if (session && command['startTransaction']) session.transaction = { message, reply }
      return reply
    }
    const begun = session?.transaction
    if (!begun) throw serverError(noSuchTransaction, 'no such transaction')
    session.transaction = null
    const { where: target, command: statements } = begun.message
    const { n, writeErrors } = this.server.execute(sender, target, statements, false) as Document
    if (n !== begun.reply['n'] || writeErrors || begun.reply['writeErrors'])
      throw serverError(writeConflict, 'write conflict')
    return this.server.execute(sender, target, { ...statements, startTransaction: false }, false)
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

  #await(awaiting: Awaiting, { answer, resolve, reject }: Omit<Return, 'tell'>): void {
    const tell = (): void => {
      if (awaiting.cursor.awaiting !== tell) return
      awaiting.cursor.awaiting = null
      try {
        const reply = this.server.answer(awaiting)
        answer(() => resolve(reply))
      } catch (error) {
        answer(() => reject(error))
      }
    }
    awaiting.cursor.awaiting = tell
    this.#clock.after(awaiting.patienceMS, null, tell, false)
  }

  #operations(match: Document): Document[] {
    if (!this.showsOperations) return []
    return [...this.#active]
      .map(({ shown }) => shown)
      .filter((shown) => this.#shown.matches(shown, match))
      .slice(0, 1)
  }
}

function isWrite(command: Document): boolean {
  return command['writeConcern'] !== undefined || command['startTransaction'] === true
}

function isOfCopy(command: Document): boolean {
  const isEnd = (): boolean => (command['updates'] as Document[]).some(({ u }) => u.$addToSet)
  return command['delete'] === 'segments' || (command['update'] === 'collections' && isEnd())
}

function withoutNumber(message: Message): Message {
  const { startTransaction, autocommit, txnNumber, ...plain } = message.command
  return { ...message, session: null, command: { ...plain, writeConcern: { w: 'majority' } } }
}

/** Of a plan, or of a range of documents. */
function isBulkRead(command: Document): boolean {
  const [stage] = (command['pipeline'] ?? []) as Document[]
  const isOfPlan = stage?.['$sample'] !== undefined || stage?.['$collStats'] !== undefined
  return isOfPlan || command['hint'] !== undefined || String(command['collection'] ?? '').startsWith('things')
}

/** Whoever sent it has given it up. */
const toNobody: Return = { tell: () => {}, answer: () => {}, resolve: () => {}, reject: () => {} }

const scratch = Buffer.alloc(256)

/** The moment in which the driver makes a message of a command: whatever is to be asked then, is asked. Returns its text. */
function writeComment(comment: unknown): string {
  if (typeof comment !== 'object' || comment === null) return String(comment)
  scratch.set([7, 0x63, 0])
  const end = 3 + (comment as { serializeInto: (target: Uint8Array, at: number) => number }).serializeInto(scratch, 3)
  return scratch.latin1Slice(7, end - 1)
}
