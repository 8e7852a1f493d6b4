import { setTimeout as sleep } from 'node:timers/promises'
import { type ClientSession, type Document, Long, MongoClient, Timestamp } from 'mongodb'
import { type ClusterTime, laterOf, ordinalOf, secondsOf } from '../domain/cluster-time.ts'
import { codeOf, isTransient, isTransientCode, mayStillRun, TransientReplyError } from './errors.ts'
import { CheckedText } from './raw-values.ts'
import type { RetryMonitor } from './retry.ts'

export type ClusterName = 'cluster0' | 'cluster1'

export interface CommandOptions {
  session?: ClientSession
  /** Client-side deadline in ms; 0 waits for as long as the server works (index builds, DDL). */
  timeoutMS?: number
  /** Give the documents of a cursor's batch as bytes. */
  rawBatch?: boolean
  /** For the lease itself, which must be writable to be renewed. */
  unfenced?: boolean
}

/** Data commands that take longer than this are sent again on a fresh connection: a half-open socket never answers. */
const defaultTimeoutMS = 30_000
/** Longer than any write lives: the server ends data writes after 25 s (maxTimeMS). */
const settleLimitMS = 28_000

/** `$clusterTime` as replies carry it, signed by the cluster. */
type ServerClock = Parameters<ClientSession['advanceClusterTime']>[0]

/** One of the two clusters. Every command goes through `read` or `write`, which know what each must carry. */
export class Cluster {
  readonly name: ClusterName
  readonly client: MongoClient
  /** Clusters without authentication let a command pass user write blocking by this field; others refuse it. */
  writesCarryBypass = false
  /** Spoken to through mongos (`readFacts` finds out). */
  sharded = false
  /** Runs a release older than 6.0, whose commands know no `collectionUUID` and whose change streams no `showExpandedEvents`. */
  before6 = false
  /** Asked before each write; throws when this instance may no longer write (its lease ran out). */
  fence: () => void = () => {}
  /** Shown while a write of unknown outcome is waited for. */
  monitor: RetryMonitor | null = null
  /** Ends that waiting when the process stops. */
  stopped: AbortSignal | null = null
  #latest: ClusterTime = 0n
  #clock: ServerClock | null = null
  #writes = 0
  readonly #appName: string

  constructor(name: ClusterName, uri: string, appName: string) {
    this.name = name
    this.#appName = appName
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
  }

  /** The newest operation time any reply of this cluster carried. */
  get latest(): ClusterTime {
    return this.#latest
  }

  async read(database: string, command: Document, options: CommandOptions = {}): Promise<Document> {
    return await this.#run(database, command, options)
  }

  /**
   * Writes with majority acknowledgement. A reply whose write concern was not met is no answer: TransientReplyError
   * (a batch with a duplicate key *and* a write concern error is not done either).
   */
  async write(database: string, command: Document, options: CommandOptions = {}): Promise<Document> {
    if (!options.unfenced) this.fence()
    this.#writes += 1
    const comment = `${this.#appName}:${this.#writes}`
    const sent = {
      ...command,
      // The lease may be lost between the call and the moment the message is written.
      comment: options.unfenced ? comment : new CheckedText(comment, () => this.fence()),
      writeConcern: { w: 'majority' },
      ...(this.writesCarryBypass ? { mayBypassWriteBlocking: true } : {}),
    }
    const reply = await this.#run(database, sent, options).catch(async (error) => {
      const answered = codeOf(error)
      const isOpen = answered === undefined ? isTransient(error) : mayStillRun(answered, this.sharded)
      if (isOpen && !options.unfenced) await this.#settled(comment)
      throw error
    })
    const concern = reply['writeConcernError'] as { code: number; errmsg: string } | undefined
    const errors = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
    const passing = errors.find((error) => isTransientCode(error.code))
    const met = concern ? [concern, ...errors] : errors
    if (!options.unfenced && met.some((error) => mayStillRun(error.code, this.sharded))) await this.#settled(comment)
    if (concern) throw new TransientReplyError(`write concern not met: ${concern.errmsg}`)
    if (passing) throw new TransientReplyError(`a statement met a passing error: ${passing.errmsg}`, passing.code)
    return reply
  }

  /**
   * The outcome of a write is unknown, and the server may still be at it: sent again, the older one could come last. Resolves when
   * the server works on nothing with this comment any more, or has had the time to end it by itself.
   */
  async #settled(comment: string): Promise<void> {
    const key = Symbol(comment)
    this.monitor?.begin(key, 'waiting for a write of unknown outcome to end', '')
    await this.idle({ 'command.comment': comment }).finally(() => this.monitor?.end(key))
  }

  /** Resolves when no operation of the server matches, but after `settleLimitMS` at the latest. */
  async idle(match: Document): Promise<void> {
    const until = performance.now() + settleLimitMS
    while (performance.now() < until && !this.stopped?.aborted) {
      try {
        const pipeline = [{ $currentOp: {} }, { $match: { active: true, ...match } }, { $limit: 1 }]
        const reply = await this.#run('admin', { aggregate: 1, pipeline, cursor: {} }, { timeoutMS: 5_000 })
        if ((reply['cursor'].firstBatch as unknown[]).length === 0) return
      } catch (error) {
        if (!isTransient(error)) return // not allowed to look
      }
      await sleep(50)
    }
  }

  async #run(database: string, command: Document, options: CommandOptions): Promise<Document> {
    // A connection of the driver's that is new knows no time of the cluster, not even its session's (7.8, see startSession).
    const told = this.sharded && this.#clock ? { ...command, $clusterTime: this.#clock } : command
    const reply = await this.client.db(database).command(told, {
      ...(options.session ? { session: options.session } : {}),
      ...(options.rawBatch ? { fieldsAsRaw: { firstBatch: true, nextBatch: true } } : {}),
      // The driver's own timeoutMS does nothing in 7.8; an aborted command closes its connection.
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

  /**
   * A session that tells what time it is in the cluster. The driver passes that on by connection, but a mongos that has not heard
   * of a time yet refuses to read after it (InvalidOptions), and a position may have come by way of another.
   */
  startSession(): ClientSession {
    const session = this.client.startSession({ causalConsistency: false })
    if (this.#clock) session.advanceClusterTime(this.#clock)
    return session
  }

  async close(): Promise<void> {
    await this.client.close()
  }
}

/** When the server answered, in the cluster's own time. */
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

/** A server-side cursor read as raw batches. It lives in a session of its own, as the server demands for getMore. */
export class RawCursor {
  readonly #cluster: Cluster
  readonly #database: string
  readonly #session: ClientSession
  #id: Long | null
  #collection: string
  /** The first batch, until it is taken. */
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

  /** All documents of a cursor that ends, as bytes. */
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

  /** The next batch (possibly empty for an awaiting cursor), or null when the cursor is exhausted. */
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
        .read(this.#database, { killCursors: this.#collection, cursors: [this.#id] }, { timeoutMS: 2_000 })
        .catch(() => {})
      this.#id = null
    }
    await this.#session.endSession().catch(() => {})
  }
}

export interface RawBatch {
  documents: Buffer[]
  /** Change streams only: resumes right after this batch. */
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
