import { BSON, type ClientSession, type Document, Long, type ReadPreference } from 'mongodb'
import { splitNamespace } from '../domain/namespace.ts'
import type { Cluster } from './cluster.ts'
import { stayAtOneMember, stayAtOneRouter } from './same-server.ts'

/**
 * A server-side cursor that returns raw batches. It has its own session, because getMore must use the session that
 * opened the cursor. It stays with the router, or the member of a replica set, that opened it: other servers do not know
 * the cursor.
 */
export class RawCursor {
  readonly #cluster: Cluster
  readonly #database: string
  readonly #session: ClientSession
  readonly #from: { readPreference?: ReadPreference }
  #id: Long | null
  #collection: string
  /** The first batch, until the caller takes it. */
  #first: RawBatch | null

  private constructor(
    cluster: Cluster,
    session: ClientSession,
    from: { readPreference?: ReadPreference },
    reply: Document,
  ) {
    this.#cluster = cluster
    this.#session = session
    this.#from = from
    this.#first = toBatch(reply)
    this.#id = openId(reply)
    const { database, collection } = splitNamespace(cluster.names.namespaceOnSource(reply['cursor'].ns as string))
    this.#database = database
    this.#collection = collection
  }

  /** @param readPreference which members of a replica set may answer; by default only the primary */
  static async open(
    cluster: Cluster,
    database: string,
    command: Document,
    timeoutMS?: number,
    readPreference?: ReadPreference,
  ): Promise<RawCursor> {
    const session = cluster.startSession()
    if (readPreference === undefined) stayAtOneRouter(session)
    else stayAtOneMember(session)
    return await RawCursor.openIn(session, cluster, database, command, timeoutMS, readPreference)
  }

  /** Opens a cursor in a session that the caller has used before. `close` ends the session. */
  static async openIn(
    session: ClientSession,
    cluster: Cluster,
    database: string,
    command: Document,
    timeoutMS?: number,
    readPreference?: ReadPreference,
  ): Promise<RawCursor> {
    const from = readPreference === undefined ? {} : { readPreference }
    try {
      const reply = await cluster.read(database, command, {
        session,
        rawBatch: true,
        ...from,
        ...(timeoutMS === undefined ? {} : { timeoutMS }),
      })
      return new RawCursor(cluster, session, from, reply)
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
      for (let batch = await cursor.next(); batch; batch = await cursor.next()) {
        // A batch may have a hundred thousand documents, which are too many arguments of one call.
        for (const document of batch.documents) documents.push(document)
      }
      return documents
    } finally {
      await cursor.close()
    }
  }

  /** Returns the next batch, or null when the cursor is exhausted. A batch of an awaiting cursor may be empty. */
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
      {
        session: this.#session,
        rawBatch: true,
        ...this.#from,
        ...(options.timeoutMS ? { timeoutMS: options.timeoutMS } : {}),
      },
    )
    this.#id = openId(reply)
    return toBatch(reply)
  }

  /** Runs a command on the server of the cursor. */
  run(database: string, command: Document): Promise<Document> {
    return this.#cluster.read(database, command, { session: this.#session, ...this.#from })
  }

  async close(): Promise<void> {
    if (this.#id) {
      await this.#cluster
        .read(
          this.#database,
          { killCursors: this.#collection, cursors: [this.#id] },
          { session: this.#session, ...this.#from, timeoutMS: 2_000 },
        )
        .catch(() => {})
      this.#id = null
    }
    await this.#session.endSession().catch(() => {})
  }
}

export interface RawBatch {
  documents: Buffer[]
  /** For change streams: a stream that resumes after this token continues right after this batch. */
  resumeToken: { _data: string } | null
  /**
   * For reads with `$_requestResumeToken`: the token, as a BSON document, with which a read resumes right after this
   * batch. Null if there is none.
   */
  recordToken: Buffer | null
}

function toBatch(reply: Document): RawBatch {
  const cursor = reply['cursor']
  return {
    documents: (cursor.firstBatch ?? cursor.nextBatch) as Buffer[],
    resumeToken: cursor.postBatchResumeToken ?? null,
    recordToken: recordTokenOf(cursor.postBatchResumeToken),
  }
}

/** The server accepts the record id only as the int64 that it has sent. The driver has parsed it as a number. */
function recordTokenOf(token: Document | undefined): Buffer | null {
  const recordId = token?.['$recordId'] as unknown
  if (!Number.isSafeInteger(recordId)) return null
  return Buffer.from(BSON.serialize({ ...token, $recordId: Long.fromNumber(recordId as number) }))
}

function openId(reply: Document): Long | null {
  const id = reply['cursor'].id as Long | number
  const long = typeof id === 'number' ? Long.fromNumber(id) : id
  return long.isZero() ? null : long
}
