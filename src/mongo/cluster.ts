import { type ClientSession, type Db, type Document, MongoClient, type ReadPreference, Timestamp } from 'mongodb'
import { addCircumstances } from '../domain/circumstances.ts'
import { type ClusterTime, laterOf, ordinalOf, secondsOf } from '../domain/cluster-time.ts'
import { metadataDatabase, namespace } from '../domain/namespace.ts'
import { type NamespaceRemap, noRemap } from '../domain/namespace-remap.ts'
import type { CopyReadPreference } from '../domain/read-preference.ts'
import type { ShardNames } from '../domain/shard-names.ts'
import { shardUri } from '../domain/shard-uri.ts'
import { unverifiedOptionsOf } from '../domain/uri-rules.ts'
import { ClusterWriter } from './cluster-writer.ts'
import { convertActualName, renamedCommand } from './renamed-command.ts'
import type { RetryMonitor } from './retry.ts'
import './reset-connections.ts'
import { untilIdle } from './running-operations.ts'
import type { WriteSessions } from './write-sessions.ts'

export type ClusterName = 'cluster0' | 'cluster1'

export interface CommandOptions {
  session?: ClientSession
  /** Client-side deadline in ms. 0 means that neither the client nor the server limits the time (index builds). */
  timeoutMS?: number
  /** Return the documents of a cursor's batch as bytes. */
  rawBatch?: boolean
  /** Which members of a replica set may answer; by default only the primary. */
  readPreference?: ReadPreference
  /** Skip the fence, for writes that need no lease, such as the renewal of the lease itself. */
  unfenced?: boolean
  /**
   * Send no write concern, for commands that mongos refuses with one (`supportsWriteConcern` in the server's source).
   * The config servers acknowledge these by a majority.
   */
  withoutWriteConcern?: boolean
}

/** A data command that takes longer than this is sent again on a new connection: a half-open socket never answers. */
const defaultTimeoutMS = 30_000
/** `$clusterTime` from a reply, signed by the cluster. */
type ServerClock = Parameters<ClientSession['advanceClusterTime']>[0]

export interface BothClusters {
  source: Cluster
  destination: Cluster
}

/** One of the two clusters. `read` and `write` add the fields and options that every command needs. */
export class Cluster {
  readonly name: ClusterName
  readonly client: MongoClient
  /** Options of the connection string that turn certificate verification off. */
  readonly unverified: readonly string[]
  /**
   * Writes carry `mayBypassWriteBlocking`. On a cluster without authentication, the field lets a command bypass user
   * write blocking. Other clusters reject the field.
   */
  writesCarryBypass = false
  /** The release of the server that the connection string reaches, such as "6.0.27". Set by `readFacts`. */
  version = ''
  /** True if the connection goes through mongos. Set by `readFacts`. */
  sharded = false
  /**
   * True if two shards may have documents with the same `_id`. Every sharded cluster allows that. Only the simulation,
   * whose change events contain no shard key values, simulates several shards and leaves this false.
   */
  idsMayRepeat = false
  /** True for a release before 6.0: commands have no `collectionUUID`, change streams no `showExpandedEvents`. */
  before6 = false
  /** Which members may answer the reads of whole collections (`--copyReadPreference`). */
  copyReadPreference: CopyReadPreference = 'primary'
  /** The names of the other cluster's shards that have the zones of this cluster's shards (`--shardNames`). */
  shardNames: ShardNames = new Map()
  /**
   * The database of the sync's metadata. It has the same name on both clusters. `findStoredSync` sets it before this
   * process takes part in a sync. It does not change while the process takes part.
   */
  metadataDatabase: string = metadataDatabase
  /**
   * The names that this cluster, as the destination of the sync, gives the source's databases and collections. Callers use
   * the names of the source, in commands and in administrative namespaces. Queries of the config database and all replies
   * have the names of this cluster, and their readers convert them.
   */
  names: NamespaceRemap = noRemap
  /** Called before each write. Throws when this instance must not write because its lease has expired. */
  fence: () => void = () => {}
  /**
   * The sessions of the lease that `fence` checks. On a replica set, each data write carries a `txnNumber` of its
   * session. If the write is delayed and arrives after a higher number, the server rejects it.
   */
  sessions: WriteSessions | null = null
  /** Shows in the progress that tandem waits for a write of unknown outcome. */
  monitor: RetryMonitor | null = null
  /** Ends the wait for a write of unknown outcome when the process stops. */
  stopped: AbortSignal | null = null
  /**
   * Resolves when the connections of `openConnections` are open, or could not be opened. Await it before many commands are
   * sent at the same time: the driver lets each command that finds no free connection wait for a new one of its own, even
   * if others become free earlier.
   */
  opening: Promise<unknown> = Promise.resolve()
  #latest: ClusterTime = 0n
  #answeredAt = Number.NEGATIVE_INFINITY
  #clock: ServerClock | null = null
  readonly #writer: ClusterWriter
  readonly #appName: string
  readonly #uri: string
  /** The servers of the cluster that the driver has discovered, as host:port. */
  readonly #servers = new Set<string>()
  /** The driver's objects for databases. Creating one takes several per cent of the CPU time of a small command. */
  readonly #databases = new Map<string, Db>()
  readonly #ending = new Set<Promise<void>>()
  /** The clients of `openShard` that are open. */
  readonly #shards = new Set<MongoClient>()
  #closed = false

  constructor(name: ClusterName, uri: string, appName: string) {
    this.name = name
    this.#appName = appName
    this.#uri = uri
    this.#writer = new ClusterWriter(this, appName)
    this.unverified = unverifiedOptionsOf(uri)
    this.client = new MongoClient(uri, {
      appName,
      maxPoolSize: 64,
      ...connectionsAtOnce(uri),
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
   * A second connection to this cluster that gives databases other names, for checks beside a sync that is running. The
   * caller closes it.
   */
  openWith(names: NamespaceRemap): Cluster {
    const { version, sharded, idsMayRepeat, before6, writesCarryBypass, shardNames } = this
    const opened = new Cluster(this.name, this.#uri, this.#appName)
    const facts = { version, sharded, idsMayRepeat, before6, writesCarryBypass, shardNames }
    return Object.assign(opened, facts, { metadataDatabase: this.metadataDatabase, names })
  }

  /**
   * Returns a client for one shard, past the routers, with the user and the options of the connection string. The client
   * connects when it is first used. `close` closes it too.
   * @param host as in `config.shards`
   */
  openShard(host: string): MongoClient {
    if (this.#closed) throw new Error(`${this.name} is closed`)
    const { credentials } = this.client.options
    const client = new MongoClient(shardUri(this.#uri, host), {
      appName: this.#appName,
      // These replace pool sizes in the connection string.
      minPoolSize: 0,
      maxPoolSize: 1,
      waitQueueTimeoutMS: 5_000,
      serverSelectionTimeoutMS: 5_000,
      connectTimeoutMS: 5_000,
      readPreference: 'primary',
      ...(credentials?.source ? { authSource: credentials.source } : {}),
    })
    this.#shards.add(client)
    return client
  }

  async closeShard(client: MongoClient): Promise<void> {
    await client.close().finally(() => this.#shards.delete(client))
  }

  /** True if bulk reads may go to secondaries, which requires a replica set of 6.0 or later. Valid after `readFacts`. */
  get readsSecondaries(): boolean {
    return this.copyReadPreference === 'secondaryPreferred' && !this.sharded && !this.before6
  }

  get encrypted(): boolean {
    return this.client.options.tls
  }

  /** The newest operation time in any reply of this cluster. */
  get latest(): ClusterTime {
    return this.#latest
  }

  /** When this cluster last answered a command (ms, `performance.now()`); negative infinity before the first reply. */
  get answeredAt(): number {
    return this.#answeredAt
  }

  async read(database: string, command: Document, options: CommandOptions = {}): Promise<Document> {
    return await this.run(database, command, options)
  }

  /**
   * Writes with majority acknowledgement. The driver throws when the write concern is not met. That error counts as
   * transient, even if the reply also has a duplicate key error, so a retry sends the whole batch again.
   */
  write(database: string, command: Document, options: CommandOptions = {}): Promise<Document> {
    return this.#writer.write(database, command, options)
  }

  /**
   * Resolves when no server runs a matching operation, or when the time limit of every such operation has passed.
   * @param match filter on the documents of `$currentOp`
   */
  idle(match: Document): Promise<void> {
    return untilIdle(this, match)
  }

  /** Sends the command without the fence and the fields of a write. Adds `$clusterTime`, and `maxTimeMS` to a read. */
  async run(database: string, command: Document, options: CommandOptions): Promise<Document> {
    const session = options.session ?? this.startSession()
    try {
      return await this.#inSession(session, database, command, options)
    } catch (error) {
      throw this.named(error, database, command)
    } finally {
      if (!options.session) await session.endSession()
    }
  }

  /**
   * Adds the newest `$clusterTime` that any server of this cluster has reported. A server rejects a read whose
   * `afterClusterTime` it has not observed (InvalidOptions), and that time may come from another router or the former
   * primary. The driver (7.8, `prepareCommand`) sends the session's time only if it is later than the connection's, and
   * sends neither on a new connection.
   */
  async #inSession(
    session: ClientSession,
    database: string,
    command: Document,
    options: CommandOptions,
  ): Promise<Document> {
    if (this.#clock) session.advanceClusterTime(this.#clock)
    const addressed = renamedCommand(this.names, database, command)
    const limited = withOwnLimit(addressed.command)
    const sent = this.#clock ? { ...limited, $clusterTime: this.#clock } : limited
    const sending = this.#database(addressed.database).command(sent, {
      session,
      ...(options.readPreference ? { readPreference: options.readPreference } : {}),
      ...(options.rawBatch ? { fieldsAsRaw: { firstBatch: true, nextBatch: true } } : {}),
      // The driver's own timeoutMS has no effect in 7.8. An aborted command closes its connection.
      ...(options.timeoutMS === 0 ? {} : { signal: AbortSignal.timeout(options.timeoutMS ?? defaultTimeoutMS) }),
      promoteLongs: true,
      bsonRegExp: true,
    } as object)
    const reply = await sending.catch((error: unknown) => {
      convertActualName(this.names, addressed, database, error)
      throw error
    })
    this.#answeredAt = performance.now()
    const operationTime = operationTimeOf(reply)
    if (operationTime !== null) this.#latest = laterOf(this.#latest, operationTime)
    const clock = reply['$clusterTime'] as ServerClock | undefined
    if (clock && !(this.#clock && clock.clusterTime.lessThanOrEqual(this.#clock.clusterTime))) this.#clock = clock
    return reply
  }

  #database(name: string): Db {
    let found = this.#databases.get(name)
    if (!found) {
      if (this.#databases.size >= databasesMax) this.#databases.clear()
      found = this.client.db(name)
      this.#databases.set(name, found)
    }
    return found
  }

  /** Adds to the error the command and the cluster that caused it. */
  named(error: unknown, database: string, command: Document): unknown {
    const sent = renamedCommand(this.names, database, command)
    addCircumstances(error, { cluster: this.name, ...nameOf(sent.database, sent.command) })
    return error
  }

  startSession(): ClientSession {
    return this.client.startSession({ causalConsistency: false })
  }

  /**
   * Opens connections ahead of their use, in the background. Over distance, a connection that is opened when it is needed
   * delays its first command by the round trips of the handshakes. The pings are sent at the same time, so most of them get
   * a connection of their own. Commands that were called before get the connections that are open already.
   */
  openConnections(count = connectionsAhead): void {
    const pings = () => Array.from({ length: count }, () => this.read('admin', { ping: 1 }))
    // The work that needs the cluster reports that it does not answer.
    this.opening = new Promise((resolve) => setImmediate(() => resolve(Promise.allSettled(pings()))))
  }

  /** Lets this work, which never rejects, end in the background. `close` waits for it. */
  endLater(work: Promise<void>): void {
    this.#ending.add(work)
    void work.finally(() => this.#ending.delete(work))
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.allSettled([...this.#ending, ...[...this.#shards].map((client) => this.closeShard(client))])
    await this.client.close()
  }
}

/** A bound for clusters with very many databases. */
const databasesMax = 100

/** With the connections of `readFacts`, about as many as a start uses at the same time. */
const connectionsAhead = 8

/**
 * Opening a connection takes two round trips, and three to five with TLS and authentication. By default the driver opens
 * two at a time per server, so work that begins in parallel would wait for connections. `maxConnecting` of the connection
 * string replaces this value
 * (https://www.mongodb.com/docs/drivers/node/current/connect/connection-options/).
 */
function connectionsAtOnce(uri: string): { maxConnecting?: number } {
  return /[?&]maxConnecting=/i.test(uri) ? {} : { maxConnecting: 32 }
}

/** The commands to which a server applies `defaultMaxTimeMS`. */
const limitedByDefault = new Set(['find', 'aggregate', 'count', 'distinct'])

/**
 * Adds `maxTimeMS: 0` (no limit) to a read that has no `maxTimeMS` of its own. Without it, the cluster parameter
 * `defaultMaxTimeMS` (8.0) limits the read (`getRequestOrDefaultMaxTimeMS` in default_max_time_ms_cluster_parameter.cpp
 * in the server's source). A read that always takes longer than that, such as the first one of a change stream, would
 * fail at each retry.
 */
function withOwnLimit(command: Document): Document {
  const [name = ''] = Object.keys(command)
  return limitedByDefault.has(name) && command['maxTimeMS'] === undefined ? { ...command, maxTimeMS: 0 } : command
}

function nameOf(database: string, command: Document): { command: string; namespace: string } {
  const [name = '', target] = Object.entries(command)[0] ?? []
  const collection = name === 'getMore' ? command['collection'] : target
  if (typeof collection !== 'string') return { command: name, namespace: database }
  // Administrative commands such as shardCollection name the whole namespace.
  const isWhole = database === 'admin' && /^[^$].*\./.test(collection)
  return { command: name, namespace: isWhole ? collection : namespace(database, collection) }
}

/** Returns the operation time of the reply, in the cluster's own time; null if the reply has none. */
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
