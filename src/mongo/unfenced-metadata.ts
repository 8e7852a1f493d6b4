import { BSON, type Document } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { RawCursor } from './raw-cursor.ts'
import { MetadataWriteError } from './stored-documents.ts'

export interface StatementFailure {
  /** The position of the statement in its command. */
  index: number
  code: number
  errmsg: string
}

/**
 * The metadata database, for documents that are written without a lease: leases, claims, heartbeats, commands and the
 * audit trail. No command is retried. Every method rejects when the cluster does not answer in time.
 */
export class UnfencedMetadata {
  readonly #cluster: Cluster
  readonly #limits: { timeoutMS?: number }
  readonly #database: string

  /**
   * @param limits time limit of a command by the client's clock; without one, the default of `Cluster` applies
   * @param database the metadata database; by default, that of the cluster at this moment
   */
  constructor(cluster: Cluster, limits: { timeoutMS?: number } = {}, database: string = cluster.metadataDatabase) {
    this.#cluster = cluster
    this.#limits = limits
    this.#database = database
  }

  /** Reads majority-committed documents. The command's first batch must hold all of them. */
  async read(command: Document): Promise<Document[]> {
    const majority = { ...command, readConcern: { level: 'majority' } }
    const reply = await this.#cluster.read(this.#database, majority, this.#limits)
    return reply['cursor'].firstBatch as Document[]
  }

  /** Reads majority-committed documents, in as many batches as they need. */
  async readAll(command: Document): Promise<Document[]> {
    const majority = { ...command, readConcern: { level: 'majority' } }
    const { timeoutMS } = this.#limits
    const cursor = await RawCursor.open(this.#cluster, this.#database, majority, timeoutMS)
    try {
      const documents: Document[] = []
      for (let batch = await cursor.next(this.#limits); batch; batch = await cursor.next(this.#limits)) {
        documents.push(...batch.documents.map((bytes) => BSON.deserialize(bytes)))
      }
      return documents
    } finally {
      await cursor.close()
    }
  }

  /** Returns the reply, and the statements that the server refused. */
  async write(command: Document): Promise<{ reply: Document; failed: StatementFailure[] }> {
    const reply = await this.#cluster.write(this.#database, command, { unfenced: true, ...this.#limits })
    return { reply, failed: (reply['writeErrors'] ?? []) as StatementFailure[] }
  }

  /** Returns the error for a statement of the command that the server refused. */
  refused({ code, errmsg }: StatementFailure, command: Document): unknown {
    return this.#cluster.named(new MetadataWriteError(code, errmsg), this.#database, command)
  }
}
