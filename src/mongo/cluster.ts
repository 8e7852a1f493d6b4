import { setTimeout as sleep } from 'node:timers/promises'
import { type ClientSession, type Document, Long, MongoClient, Timestamp } from 'mongodb'
import { addCircumstances } from '../domain/circumstances.ts'
import { type ClusterTime, laterOf, ordinalOf, secondsOf } from '../domain/cluster-time.ts'
import { namespace } from '../domain/namespace.ts'
import { shardUri } from '../domain/shard-uri.ts'
import { unverifiedOptionsOf } from '../domain/uri-rules.ts'
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
import type { RetryMonitor } from './retry.ts'
import './reset-connections.ts'
import { routersOf, stayAtOneRouter } from './same-server.ts'
import type { NumberedWrite, WriteSessions } from './write-sessions.ts'

export type ClusterName = 'cluster0' | 'cluster1'

export interface CommandOptions {
  session?: ClientSession
  /** Client-side deadline in ms. 0 means that neither the client nor the server limits the time (index builds). */
  timeoutMS?: number
  /** Return the documents of a cursor's batch as bytes. */
  rawBatch?: boolean
  /** Skip the fence. For the lease itself, which must be writable to be renewed. */
  unfenced?: boolean
}

/** A data command that takes longer than this is sent again on a new connection: a half-open socket never answers. */
const defaultTimeoutMS = 30_000
/** The server ends a write before the client gives up on it, so that no write continues unobserved. */
const writeLimitMS = 25_000
/**
 * Longer than any write with a time limit runs. Writes without a limit are safe to outlive it: they name their target
 * by UUID and are idempotent.
 */
const drainLimitMS = 28_000
/** The type by which `$currentOp` shows a session that holds an open transaction and runs no command. */
const idleSession = 'idleSession'
/** The server ends a transaction after 60 s (`transactionLifetimeLimitSeconds`), and checks at least once in half of that time. */
const transactionLimitMS = 95_000

/** `$clusterTime` from a reply, signed by the cluster. */
type ServerClock = Parameters<ClientSession['advanceClusterTime']>[0]

export interface BothClusters {
  source: Cluster
  destination: Cluster
}

/** One of the two clusters. `read` and `write` add to every command what it must carry. */
export class Cluster {
  readonly name: ClusterName
  readonly client: MongoClient
  /** Options of the connection string that turn certificate verification off. */
  readonly unverified: readonly string[]
  /** Without authentication, this field lets a command bypass user write blocking. Other clusters reject the field. */
  writesCarryBypass = false
  /** The connection goes through mongos. Set by `readFacts`. */
  sharded = false
  /** Runs a release before 6.0: commands have no `collectionUUID` and change streams have no `showExpandedEvents`. */
  before6 = false
  /** Called before each write. Throws when this instance must not write because its lease has expired. */
  fence: () => void = () => {}
  /**
   * The numbered sessions of the lease that `fence` checks. The server rejects a write that arrives after this process
   * stopped waiting for it.
   */
  sessions: WriteSessions | null = null
  /** Shows that a write of unknown outcome is being waited for. */
  monitor: RetryMonitor | null = null
  /** Ends that wait when the process stops. */
  stopped: AbortSignal | null = null
  #latest: ClusterTime = 0n
  #clock: ServerClock | null = null
  #writes = 0
  readonly #appName: string
  readonly #uri: string
  /** The servers of the cluster that the driver has discovered, as host:port. */
  readonly #servers = new Set<string>()

  constructor(name: ClusterName, uri: string, appName: string) {
    this.name = name
    this.#appName = appName
    this.#uri = uri
    this.unverified = unverifiedOptionsOf(uri)
    this.client = new MongoClient(uri, {
      appName,
      maxPoolSize: 64,
      retryReads: false,
      retryWrites: false,
      serverSelectionTimeoutMS: 5_000,
      connectTimeoutMS: 10_000,
      heartbeatFrequencyMS: 2_000,
      readPreference: 'primary',
    })
    this.client.on('serverOpening', ({ address }) => this.#servers.add(address))
    this.client.on('serverClosed', ({ address }) => this.#servers.delete(address))
  }

  /** The hosts of the connection string and those that the driver has discovered, as host:port or as a socket path. */
  get hosts(): string[] {
    const named = this.client.options.srvHost ? [] : this.client.options.hosts.map(String)
    return [...new Set([...named, ...this.#servers])]
  }

  /**
   * Runs `work` against one shard directly, past the routers, over a connection of its own that is closed afterwards.
   * @param host as in `config.shards`
   */
  async onShard<Result>(
    host: string,
    work: (read: (database: string, command: Document) => Promise<Document>) => Promise<Result>,
  ): Promise<Result> {
    const { credentials } = this.client.options
    const client = new MongoClient(shardUri(this.#uri, host), {
      appName: this.#appName,
      maxPoolSize: 1,
      serverSelectionTimeoutMS: 5_000,
      connectTimeoutMS: 5_000,
      readPreference: 'primary',
      ...(credentials?.source ? { authSource: credentials.source } : {}),
    })
    try {
      return await work((database, command) => client.db(database).command(command, { timeoutMS: defaultTimeoutMS }))
    } finally {
      await client.close()
    }
  }

  get encrypted(): boolean {
    return this.client.options.tls
  }

  /** The newest operation time in any reply of this cluster. */
  get latest(): ClusterTime {
    return this.#latest
  }

  async read(database: string, command: Document, options: CommandOptions = {}): Promise<Document> {
    return await this.#run(database, command, options)
  }

  /**
   * Writes with majority acknowledgement. The driver throws when the write concern is not met, and that error counts as
   * transient: even a batch with both a duplicate key and a write concern error is not complete.
   */
  async write(database: string, command: Document, options: CommandOptions = {}): Promise<Document> {
    if (options.unfenced) return await this.#send(database, command, options)
    try {
      this.fence()
      const numbered = (await this.sessions?.begin(command)) ?? null
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
      throw this.#named(error, database, command)
    }
  }

  /**
   * Sends the command as a transaction of its own. Returns null when the server has aborted it, so that none of its
   * statements took effect. The server aborts transactions on capped collections, when one statement fails, and when a
   * lock is not free within 5 ms (`maxTransactionLockRequestTimeoutMillis`).
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
      const isAborted = isCommitting ? hasNotCommitted(error) : hasAborted(error, this.sharded)
      // Without a number the command would lose its protection, and a second transaction may pass.
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
      this.fence()
      isSent = true
    }
    const sent = {
      ...command,
      ...fields,
      comment: options.unfenced ? comment : new CheckedText(comment, check),
      // The commit carries the write concern of a transaction.
      ...(fields['startTransaction'] ? {} : { writeConcern: { w: 'majority' } }),
      ...(options.timeoutMS === 0 ? {} : { maxTimeMS: writeLimitMS }),
      ...(this.writesCarryBypass ? { mayBypassWriteBlocking: true } : {}),
    }
    const given = numbered ? { ...options, session: numbered.session } : options
    const drained = () => this.#drained(comment, isSent ? numbered : null)
    const reply = await this.#run(database, sent, given).catch(async (error) => {
      if (!options.unfenced && mayBeUnderWay(error, this.sharded)) await drained()
      throw numbered && codeOf(error) === code.transactionTooOld ? numbered.refused() : error
    })
    const errors = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
    if (!options.unfenced && errors.some((error) => mayStillRun(error.code, this.sharded))) await drained()
    const transient = errors.find((error) => isTransientCode(error.code))
    if (!transient) return reply
    throw this.#named(
      new TransientReplyError(`a statement failed with a transient error: ${transient.errmsg}`, transient.code),
      database,
      command,
    )
  }

  /**
   * Waits out a write of unknown outcome. The server may still run it or receive it later, so it could take effect
   * after its own retry. Resolves when no operation with this comment runs on the server or its time limit has passed,
   * and the server rejects the number of the write.
   */
  async #drained(comment: string, numbered: NumberedWrite | null): Promise<void> {
    const key = Symbol(comment)
    this.monitor?.begin(key, 'waiting for a write of unknown outcome to end', '')
    try {
      await this.idle({ 'command.comment': comment })
      await numbered?.close()
    } finally {
      this.monitor?.end(key)
    }
  }

  /**
   * Resolves when no server runs a matching operation, or when the time limit of every such operation has passed. The
   * time limit decides where this user lacks the privilege to list operations and while a router does not answer: no
   * other server shows the operations that a router holds.
   */
  async idle(match: Document): Promise<void> {
    // A router forwards a write until its own limit; then the limit of the shard begins.
    const began = performance.now()
    let limitMS = drainLimitMS + (this.sharded ? writeLimitMS : 0)
    let mayList = true
    while (performance.now() - began < limitMS && !this.stopped?.aborted) {
      try {
        const found = mayList ? await this.#findAtWork(match) : undefined
        if (mayList && !found) return
        if (found?.['type'] === idleSession) limitMS = Math.max(limitMS, transactionLimitMS)
      } catch (error) {
        mayList = isTransient(error)
      }
      await sleep(50)
    }
  }

  /** Asks the routers first: a write that no router holds can no longer reach a shard through one. */
  async #findAtWork(match: Document): Promise<Document | undefined> {
    const findIn = async (scope: Document, session: ClientSession): Promise<Document | undefined> => {
      // Operations of all users: a predecessor may have connected as a different user.
      const pipeline = [
        { $currentOp: { allUsers: true, ...scope } },
        // Between its commands an open transaction is not active, and its commit may still arrive.
        {
          $match: {
            $and: [
              match,
              { $or: [{ active: true }, { type: idleSession, 'transaction.parameters.autocommit': false }] },
            ],
          },
        },
        { $limit: 1 },
      ]
      const command = { aggregate: 1, pipeline, cursor: {} }
      const reply = await this.#run('admin', command, { session, timeoutMS: 5_000 }).finally(() => session.endSession())
      return (reply['cursor'].firstBatch as Document[])[0]
    }
    const held = await Promise.all(
      routersOf(this.client).map(async (address) => {
        const session = this.startSession()
        stayAtOneRouter(session, address)
        return await findIn({ localOps: true }, session)
      }),
    )
    return held.find((one) => one !== undefined) ?? (await findIn({}, this.startSession()))
  }

  async #run(database: string, command: Document, options: CommandOptions): Promise<Document> {
    const session = options.session ?? this.startSession()
    try {
      return await this.#inSession(session, database, command, options)
    } catch (error) {
      throw this.#named(error, database, command)
    } finally {
      if (!options.session) await session.endSession()
    }
  }

  /**
   * Sends the newest `$clusterTime` of any server of this cluster along. A server rejects a read after a time that it
   * has not observed (InvalidOptions), and the time may come from another router or from the former primary. The driver
   * (7.8, `prepareCommand`) sends the session's time only if it is later than the connection's, and sends neither on a
   * new connection.
   */
  async #inSession(
    session: ClientSession,
    database: string,
    command: Document,
    options: CommandOptions,
  ): Promise<Document> {
    if (this.#clock) session.advanceClusterTime(this.#clock)
    const sent = this.#clock ? { ...command, $clusterTime: this.#clock } : command
    const reply = await this.client.db(database).command(sent, {
      session,
      ...(options.rawBatch ? { fieldsAsRaw: { firstBatch: true, nextBatch: true } } : {}),
      // The driver's own timeoutMS has no effect in 7.8. An aborted command closes its connection.
      ...(options.timeoutMS === 0 ? {} : { signal: AbortSignal.timeout(options.timeoutMS ?? defaultTimeoutMS) }),
      promoteLongs: true,
      bsonRegExp: true,
    } as object)
    const operationTime = operationTimeOf(reply)
    if (operationTime !== null) this.#latest = laterOf(this.#latest, operationTime)
    const clock = reply['$clusterTime'] as ServerClock | undefined
    if (clock && !(this.#clock && clock.clusterTime.lessThanOrEqual(this.#clock.clusterTime))) this.#clock = clock
    return reply
  }

  /** Adds to the error which command of which cluster caused it. */
  #named(error: unknown, database: string, command: Document): unknown {
    addCircumstances(error, { cluster: this.name, ...nameOf(database, command) })
    return error
  }

  startSession(): ClientSession {
    return this.client.startSession({ causalConsistency: false })
  }

  async close(): Promise<void> {
    await this.client.close()
  }
}

function nameOf(database: string, command: Document): { command: string; namespace: string } {
  const [name = '', target] = Object.entries(command)[0] ?? []
  const collection = name === 'getMore' ? command['collection'] : target
  return { command: name, namespace: typeof collection === 'string' ? namespace(database, collection) : database }
}

/** The operation time of the reply, in the cluster's own time. */
export function operationTimeOf(reply: Document): ClusterTime | null {
  const operationTime = reply['operationTime'] as Timestamp | undefined
  return operationTime ? fromTimestamp(operationTime) : null
}

export function fromTimestamp(timestamp: Timestamp): ClusterTime {
  return (BigInt(timestamp.getHighBitsUnsigned()) << 32n) | BigInt(timestamp.getLowBitsUnsigned())
}

export function toTimestamp(time: ClusterTime): Timestamp {
  return new Timestamp({ t: secondsOf(time), i: ordinalOf(time) })
}

/**
 * A server-side cursor that returns raw batches. It has its own session, as getMore requires, and stays with the router
 * that opened it: other routers do not know the cursor.
 */
export class RawCursor {
  readonly #cluster: Cluster
  readonly #database: string
  readonly #session: ClientSession
  #id: Long | null
  #collection: string
  /** The first batch, until the caller takes it. */
  #first: RawBatch | null

  private constructor(cluster: Cluster, database: string, session: ClientSession, reply: Document) {
    this.#cluster = cluster
    this.#database = database
    this.#session = session
    this.#first = toBatch(reply)
    this.#id = openId(reply)
    this.#collection = (reply['cursor'].ns as string).slice(database.length + 1)
  }

  static async open(cluster: Cluster, database: string, command: Document, timeoutMS?: number): Promise<RawCursor> {
    const session = cluster.startSession()
    stayAtOneRouter(session)
    try {
      const reply = await cluster.read(database, command, {
        session,
        rawBatch: true,
        ...(timeoutMS === undefined ? {} : { timeoutMS }),
      })
      return new RawCursor(cluster, database, session, reply)
    } catch (error) {
      await session.endSession()
      throw error
    }
  }

  /** Reads a finite cursor to its end and returns all documents as bytes. */
  static async readAll(cluster: Cluster, database: string, command: Document): Promise<Buffer[]> {
    const cursor = await RawCursor.open(cluster, database, command)
    try {
      const documents: Buffer[] = []
      for (let batch = await cursor.next(); batch; batch = await cursor.next()) documents.push(...batch.documents)
      return documents
    } finally {
      await cursor.close()
    }
  }

  /** The next batch, or null when the cursor is exhausted. A batch of an awaiting cursor may be empty. */
  async next(options: { batchSize?: number; awaitMS?: number; timeoutMS?: number } = {}): Promise<RawBatch | null> {
    if (this.#first) {
      const batch = this.#first
      this.#first = null
      return batch
    }
    if (!this.#id) return null
    const reply = await this.#cluster.read(
      this.#database,
      {
        getMore: this.#id,
        collection: this.#collection,
        ...(options.batchSize ? { batchSize: options.batchSize } : {}),
        ...(options.awaitMS ? { maxTimeMS: options.awaitMS } : {}),
      },
      { session: this.#session, rawBatch: true, ...(options.timeoutMS ? { timeoutMS: options.timeoutMS } : {}) },
    )
    this.#id = openId(reply)
    return toBatch(reply)
  }

  async close(): Promise<void> {
    if (this.#id) {
      await this.#cluster
        .read(
          this.#database,
          { killCursors: this.#collection, cursors: [this.#id] },
          { session: this.#session, timeoutMS: 2_000 },
        )
        .catch(() => {})
      this.#id = null
    }
    await this.#session.endSession().catch(() => {})
  }
}

export interface RawBatch {
  documents: Buffer[]
  /** For change streams: a stream that resumes here continues right after this batch. */
  resumeToken: { _data: string } | null
}

function toBatch(reply: Document): RawBatch {
  const cursor = reply['cursor']
  return {
    documents: (cursor.firstBatch ?? cursor.nextBatch) as Buffer[],
    resumeToken: cursor.postBatchResumeToken ?? null,
  }
}

function openId(reply: Document): Long | null {
  const id = reply['cursor'].id as Long | number
  const long = typeof id === 'number' ? Long.fromNumber(id) : id
  return long.isZero() ? null : long
}
