import { type Document, MongoNetworkError, MongoNetworkTimeoutError, MongoServerSelectionError } from 'mongodb'
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
}

const selectionMS = 5_000
const notPrimary = 10107
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
  readonly #shown = new StoredCollection(() => 0)
  /** For a mutation of the world: what is under way is never shown. */
  showsOperations = true

  constructor(server: Server, clock: Clock, random: Random) {
    this.server = server
    this.#clock = clock
    this.#random = random
  }

  cut(host: Host, milliseconds: number, silent: boolean): void {
    this.#cuts.set(host, { until: this.#clock.now + milliseconds, silent })
  }

  mend(): void {
    this.#cuts.clear()
    this.electionUntil = 0
    this.stuckChance = 0
  }

  /** The primary steps down: what is under way may have taken effect or not, and nobody is told. */
  elect(milliseconds: number): void {
    this.electionUntil = this.#clock.now + milliseconds
    this.server.forgetCursors()
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

  #latency(): number {
    return this.#random.chance(0.02) ? this.#random.int(5, 80) : 0.2 + this.#random.fraction()
  }

  #send(
    host: Host,
    appName: string,
    token: () => string | null,
    where: string,
    command: Document,
    { signal, fieldsAsRaw }: CommandOptions,
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
          raw: fieldsAsRaw !== undefined,
          limitMS,
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

  #arrive({ sender, where, command, comment, raw, limitMS }: Message, { tell, answer, resolve, reject }: Return): void {
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
    const writes = command['writeConcern'] !== undefined
    const shown = {
      active: true,
      appName: sender.appName,
      op: opNames[verb] ?? 'command',
      'command.comment': comment,
    }
    let ended = false
    const takeEffect = (): void => {
      let reply: Document | Awaiting
      try {
        reply = this.server.execute(sender, where, command, raw)
      } catch (error) {
        answer(() => reject(error))
        return
      }
      if ('cursor' in reply && 'patienceMS' in reply) this.#await(reply as Awaiting, { answer, resolve, reject })
      else answer(() => resolve(reply))
    }
    const operation: Operation = {
      sender,
      fenced: writes && typeof command['comment'] === 'object',
      shown,
      end: (fails) => {
        if (ended) return
        ended = true
        this.#active.delete(operation)
        if (!fails) return takeEffect()
        // Broken connections tell nothing of what took effect.
        if (fails instanceof MongoNetworkError && writes && this.#random.chance(0.5)) {
          try {
            this.server.execute(sender, where, command, raw)
          } catch {}
        }
        answer(() => reject(fails))
      },
    }
    this.#active.add(operation)
    const stuck = writes && this.stuckChance > 0 && this.#random.chance(this.stuckChance)
    const durationMS = stuck ? this.#random.int(1_000, 24_000) : 0.1 + this.#random.fraction()
    if (durationMS > limitMS) tell(limitMS, () => reject(new MongoNetworkTimeoutError('no answer in time')))
    this.#clock.after(durationMS, null, () => operation.end(null), false)
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

const scratch = Buffer.alloc(256)

/** The moment in which the driver makes a message of a command: whatever is to be asked then, is asked. Returns its text. */
function writeComment(comment: unknown): string {
  if (typeof comment !== 'object' || comment === null) return String(comment)
  scratch.set([7, 0x63, 0])
  const end = 3 + (comment as { serializeInto: (target: Uint8Array, at: number) => number }).serializeInto(scratch, 3)
  return scratch.latin1Slice(7, end - 1)
}
