import { type Collection, type Document, type FindCursor, MongoClient, MongoServerSelectionError } from 'mongodb'
import { redactUris } from '../domain/uri-rules.ts'
import { type Listed, readListed } from './audit-definitions.ts'
import { DocumentStream } from './document-stream.ts'
import { RenamedDatabases } from './renamed-databases.ts'

/** The clusters could not be compared. The message says what to do. Secrets of connection strings are redacted. */
export class AuditError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(redactUris(message), options)
    this.name = 'AuditError'
  }
}

const selectionTimeoutMS = 10_000
/**
 * About 1 MB of documents of 1 KB. The server ends a batch at 16 MB regardless of the number of documents. Larger
 * batches were slower.
 */
const batchDocuments = 1_000
const unauthorizedCodes = [13, 18]
/** 0 overrides the cluster parameter `defaultMaxTimeMS` (8.0): one sorted read of a large collection may take hours. */
const unlimited = { maxTimeMS: 0 } as const

export type Order =
  /** `simple` requests the simple collation, for collections whose own collations differ. */
  { by: '_id'; simple: boolean } | { by: 'natural' }

/** One of the two clusters. It is read by plain commands, which replica sets and routers answer in the same way. */
export class AuditCluster {
  readonly name: string
  readonly names: RenamedDatabases
  readonly #client: MongoClient
  #isSharded: Promise<boolean> | null = null

  /** @param names what this cluster calls the databases and collections of the other one */
  constructor(name: string, uri: string, names: RenamedDatabases = new RenamedDatabases([])) {
    this.name = name
    this.names = names
    try {
      this.#client = new MongoClient(uri, {
        appName: 'tandem verify',
        serverSelectionTimeoutMS: selectionTimeoutMS,
        readPreference: 'primary',
        // A majority read is slightly stale. Right after the last write it could show a false difference.
        readConcernLevel: 'local',
      })
    } catch (error) {
      throw this.#toAuditError(error)
    }
  }

  /** Returns an identifier of the server process, because two connection strings may lead to the same server. */
  async processId(): Promise<string> {
    const reply = await this.#request(() => this.#client.db('admin').command({ hello: 1 }))
    return String(reply['topologyVersion']?.processId)
  }

  /** Returns the names of all databases that may have collections. Fails if the user may not see all of them. */
  async databases(): Promise<string[]> {
    const command = { listDatabases: 1, nameOnly: true, authorizedDatabases: false }
    const reply = await this.#request(() => this.#client.db('admin').command(command))
    return (reply['databases'] as { name: string }[]).flatMap(({ name }) => this.names.allHere(name))
  }

  /** Returns the listCollections entry of each collection and view, with its name on the other cluster. */
  async collections(database: string): Promise<Listed[]> {
    // The driver's types omit `raw` for these two cursors.
    const options = { raw: true } as object
    const found: Listed[] = []
    for (const there of this.names.allThere(database)) {
      const documents = await this.#request(async () =>
        (await this.#client.db(there).listCollections({}, options).toArray()).map(rawDocument),
      )
      for (const listed of documents.map(readListed)) {
        const here = this.names.collectionHere(there, listed.name)
        if (here.database === database) found.push({ ...listed, name: here.collection })
      }
    }
    return found
  }

  /** Returns the index specifications as raw BSON. */
  async indexes(database: string, collection: string): Promise<Buffer[]> {
    const options = { raw: true } as object
    return await this.#request(async () =>
      (await this.#collection(database, collection).listIndexes(options).toArray()).map(rawDocument),
    )
  }

  /**
   * Returns the documents of `$indexStats`, one for each index on each shard that owns chunks of the collection, and
   * the names of these shards. Returns null for a replica set. This is needed because the router answers listIndexes
   * from one shard alone.
   */
  async indexesOnShards(database: string, collection: string): Promise<{ rows: Document[]; shards: string[] } | null> {
    this.#isSharded ??= this.#request(
      async () => (await this.#client.db('admin').command({ hello: 1 }))['msg'] === 'isdbgrid',
    )
    if (!(await this.#isSharded)) return null
    // A shard of a clustered collection may have no index. $indexStats then returns no row for it, but $collStats does.
    const read = (stage: Document): Promise<Document[]> =>
      this.#collection(database, collection).aggregate([stage]).toArray()
    try {
      const [rows, answers] = await Promise.all([read({ $indexStats: {} }), read({ $collStats: {} })])
      return { rows, shards: answers.map(({ shard }) => String(shard)) }
    } catch (error) {
      if (!unauthorizedCodes.includes((error as { code?: number }).code as number)) throw this.#toAuditError(error)
      throw new AuditError(
        `${this.name} refuses to show the indexes of its shards; grant clusterMonitor, or the actions indexStats and collStats on the compared databases, or give --ignoreIndexes: ${String(error)}`,
        { cause: error },
      )
    }
  }

  /** Reads every document. `close` must be called. */
  stream(database: string, collection: string, order: Order): { stream: DocumentStream; close: () => Promise<void> } {
    const cursor = ordered(this.#collection(database, collection), order)
    const stream = new DocumentStream(() =>
      this.#request(async () => ((await cursor.hasNext()) ? cursor.readBufferedDocuments().map(rawDocument) : null)),
    )
    const close = async (): Promise<void> => {
      await stream.idle()
      await cursor.close().catch(() => {}) // the server closes it when its session expires
    }
    return { stream, close }
  }

  /**
   * Returns the documents whose `_id` is one of the values, under the simple collation if `simple`, or else the
   * collection's.
   */
  async documentsById(database: string, collection: string, ids: unknown[], simple: boolean): Promise<Buffer[]> {
    return await this.#request(async () => {
      const cursor = this.#collection(database, collection).find({ _id: { $in: ids } } as Document, {
        raw: true,
        ...unlimited,
        ...(simple && { collation: { locale: 'simple' } }),
      })
      return (await cursor.toArray()).map(rawDocument)
    })
  }

  async close(): Promise<void> {
    await this.#client.close()
  }

  #collection(database: string, name: string): Collection {
    const there = this.names.collectionThere(database, name)
    return this.#client.db(there.database).collection(there.collection)
  }

  async #request<Reply>(work: () => Promise<Reply>): Promise<Reply> {
    try {
      return await work()
    } catch (error) {
      throw this.#toAuditError(error)
    }
  }

  #toAuditError(error: unknown): AuditError {
    if (error instanceof AuditError) return error
    const message = error instanceof Error ? error.message : String(error)
    const { code } = error as { code?: unknown }
    const remedy =
      error instanceof MongoServerSelectionError
        ? 'cannot be reached; check its address and TLS options, and that it runs and has a primary'
        : unauthorizedCodes.includes(code as number)
          ? 'refuses the user; check the credentials, and grant readAnyDatabase (with --namespace, read on that database is enough)'
          : 'cannot be read; fix the cause and run verify again from the beginning'
    return new AuditError(`${this.name} ${remedy}: ${message}`, { cause: error })
  }
}

function ordered(collection: Collection, order: Order): FindCursor<Document> {
  // One cursor may be idle for a long time while only the other is read.
  const cursor = collection.find({}, { raw: true, ...unlimited, batchSize: batchDocuments, noCursorTimeout: true })
  if (order.by === 'natural') return cursor.hint({ $natural: 1 })
  // No index has this order, so the server sorts, on disk if necessary.
  if (order.simple) return cursor.collation({ locale: 'simple' }).sort({ _id: 1 }).allowDiskUse()
  // With the hint alone, a router would not merge the results of the shards in order.
  return cursor.sort({ _id: 1 }).hint({ _id: 1 })
}

function rawDocument(document: unknown): Buffer {
  if (Buffer.isBuffer(document)) return document
  if (document instanceof Uint8Array) return Buffer.from(document.buffer, document.byteOffset, document.byteLength)
  throw new AuditError('the MongoDB driver decoded a document that was requested raw; this is a bug, please report it')
}
