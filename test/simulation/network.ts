import {
  type Binary,
  type Document,
  MongoNetworkError,
  MongoNetworkTimeoutError,
  MongoServerSelectionError,
} from 'mongodb'
import type { Random } from '../support/random.ts'
import type { Clock, Host } from './clock.ts'
import { isWrite, type Message, Operations, type ReplyPath, type Sender } from './operations.ts'
import type { Server } from './server.ts'

interface CommandOptions {
  signal?: { timeoutMS: number }
  fieldsAsRaw?: unknown
  session?: { serverSession?: { id: { id: Binary } } }
}

const selectionMS = 5_000
/** Maximum delay of a message that is held back, in ms. */
const lateMaxMS = 40_000

/** The network between the processes and one cluster. */
export class Network {
  readonly server: Server
  readonly operations: Operations
  readonly #clock: Clock
  readonly #random: Random
  /** Until when a host cannot reach this cluster, and whether its messages are dropped without an error. */
  readonly #cuts = new Map<Host, { until: number; silent: boolean }>()
  /** Until when writes of a host may be held back: the host gets a network error, and the message arrives later. */
  readonly #holds = new Map<Host, number>()

  /**
   * Returns true for writes that are often held back while their sender crashes: the removal of a plan of the copy, and
   * the end of a copy. Mutations select other writes.
   */
  isOftenLost: (command: Document) => boolean = isOfCopy
  /** Probability that such a write, and the following writes of its sender, are held back. */
  lossChance = 0.3
  /** Called when a host sends such a write. */
  onLostWrite: (host: Host) => void = () => {}
  /**
   * How a write that is held back arrives: `unnumbered` without a transaction number, as all writes through mongos; `not yet` if it must
   * wait for the moment at which it does the most harm.
   */
  lateForm: (sender: Sender, command: Document) => 'numbered' | 'unnumbered' | 'not yet' = () => 'numbered'

  constructor(server: Server, clock: Clock, random: Random) {
    this.server = server
    this.operations = new Operations(server, clock, random)
    this.#clock = clock
    this.#random = random
  }

  cut(host: Host, milliseconds: number, silent: boolean): void {
    this.#cuts.set(host, { until: this.#clock.now + milliseconds, silent })
  }

  hold(host: Host, milliseconds: number): void {
    this.#holds.set(host, this.#clock.now + milliseconds)
  }

  heal(): void {
    this.#cuts.clear()
    this.#holds.clear()
    this.operations.heal()
  }

  /** Creates a replacement for the driver's client. */
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

  /**
   * Returns whether the message is held back. Fenced commands without a transaction number, such as DDL, are never held
   * back, because nothing would reject them later.
   */
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
      else this.operations.receive(form === 'unnumbered' ? withoutNumber(message) : message, discardReply)
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
      const deliver = (delayMS: number, complete: () => void): void => {
        this.#clock.after(delayMS, host, () => {
          if (over) return
          over = true
          complete()
        })
      }
      const lost = (): void => {
        const silent = this.#cuts.get(host)?.silent === true
        if (!silent) deliver(this.#latency(), () => reject(new MongoNetworkError('connection reset')))
        else if (Number.isFinite(limitMS)) {
          deliver(sentAt + limitMS - this.#clock.now, () => reject(new MongoNetworkTimeoutError('no answer')))
        } else deliver(60_000, () => reject(new MongoNetworkError('keep-alive found the connection broken')))
      }
      const answer = (complete: () => void): void => {
        if (this.#isCut(host)) lost()
        else deliver(this.#latency(), complete)
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
        if (this.isOftenLost(command)) this.onLostWrite(host)
        if (this.#isHeld(message)) {
          deliver(this.#random.int(50, 2_000), () => reject(new MongoNetworkError('connection reset')))
          this.#arriveLate(message, this.#random.int(500, lateMaxMS), this.#clock.now + lateMaxMS)
          return
        }
        const arrive = (): void =>
          this.#isCut(host) ? lost() : this.operations.receive(message, { deliver, answer, resolve, reject })
        this.#clock.after(this.#latency(), null, arrive, false)
      }
      if (!this.#isCut(host)) return write()
      const cut = this.#cuts.get(host) as { until: number; silent: boolean }
      if (cut.silent) return lost()
      const leftMS = cut.until - this.#clock.now
      if (leftMS < selectionMS) this.#clock.after(leftMS, host, write)
      else deliver(selectionMS, () => reject(new MongoServerSelectionError('no server', {} as never)))
    })
  }
}

function isOfCopy(command: Document): boolean {
  const isEnd = (): boolean => (command['updates'] as Document[]).some(({ u }) => u.$addToSet)
  return command['delete'] === 'segments' || (command['update'] === 'collections' && isEnd())
}

function withoutNumber(message: Message): Message {
  const { startTransaction, autocommit, txnNumber, ...plain } = message.command
  return { ...message, session: null, command: { ...plain, writeConcern: { w: 'majority' } } }
}

/** The reply path of a message whose sender no longer waits for the reply. */
const discardReply: ReplyPath = { deliver: () => {}, answer: () => {}, resolve: () => {}, reject: () => {} }

const scratch = Buffer.alloc(256)

/** Serializes a comment as the driver does when it writes the message, which runs the fence. Returns its text. */
function writeComment(comment: unknown): string {
  if (typeof comment !== 'object' || comment === null) return String(comment)
  scratch.set([7, 0x63, 0])
  const end = 3 + (comment as { serializeInto: (target: Uint8Array, at: number) => number }).serializeInto(scratch, 3)
  return scratch.latin1Slice(7, end - 1)
}
