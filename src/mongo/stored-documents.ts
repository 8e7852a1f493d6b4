import { type Binary, BSON, type Document, type Timestamp } from 'mongodb'
import * as v from 'valibot'
import { duringAny } from '../domain/during-any.ts'
import { errorText } from '../domain/error-text.ts'
import { FatalError } from '../domain/errors.ts'
import { inSlices } from '../domain/in-slices.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Cluster, CommandOptions } from './cluster.ts'
import { code, codeOf } from './errors.ts'
import { RawCursor } from './raw-cursor.ts'
import { type RetryContext, retry } from './retry.ts'

/**
 * The default schema version of stored documents. `find` rejects a document whose version is not readable with
 * FatalError MetadataVersion.
 */
export const metadataVersion = 1

/** The version in which documents are written, and the versions that can be read. */
export interface StoredVersion {
  writes: number
  reads: readonly number[]
}
/** Limits of one command: the number of its statements, and their total bytes, because a single `_id` may have megabytes. */
const statementsMax = 500
const bytesMax = 8 * 1024 * 1024

const versioned = v.object({ schemaVersion: v.number() })

/** An update statement. The schema version is added to its document or to its `$set`. */
export interface StoredUpdate {
  q: Document
  u: Document | Document[]
  upsert?: boolean
  multi?: boolean
}

/**
 * Reads and writes documents in a metadata database of tandem, with majority read and write concern. Everything except
 * `findOnce` is retried (`retry`).
 */
export class StoredDocuments {
  readonly #cluster: Cluster
  readonly #context: RetryContext
  readonly #version: StoredVersion
  readonly #database: string

  /** @param database the metadata database; by default, that of the cluster at this moment */
  constructor(
    destination: Cluster,
    context: RetryContext,
    version: StoredVersion = { writes: metadataVersion, reads: [metadataVersion] },
    database: string = destination.metadataDatabase,
  ) {
    this.#cluster = destination
    this.#context = context
    this.#version = version
    this.#database = database
  }

  /**
   * Runs `work` with a StoredDocuments whose operations also reject with StoppedError when this signal is aborted. They
   * reject as well when they are still running after `work` has ended.
   */
  async until<T>(signal: AbortSignal | undefined, work: (stored: StoredDocuments) => Promise<T>): Promise<T> {
    if (!signal) return await work(this)
    return await duringAny([this.#context.signal, signal], (any) =>
      work(new StoredDocuments(this.#cluster, { ...this.#context, signal: any }, this.#version, this.#database)),
    )
  }

  async findOne(collection: string, filter: Document): Promise<Document | null> {
    const [found] = await this.find(collection, filter, { limit: 1 })
    return found ?? null
  }

  /** Throws FatalError MetadataVersion if a document has a schema version that is not readable. */
  async find(collection: string, filter: Document, extra: Document = {}): Promise<Document[]> {
    return this.#readable(collection, await this.#read(collection, { find: collection, filter, ...extra }))
  }

  /**
   * Like `find`, but the query is sent once and with a time limit, so that it does not outlive the request that waits
   * for its result.
   */
  async findOnce(collection: string, filter: Document, limitMS: number, extra: Document = {}): Promise<Document[]> {
    const command = { find: collection, filter, ...extra, maxTimeMS: limitMS }
    return this.#readable(collection, await this.#readOnce(command))
  }

  #readable(collection: string, documents: Document[]): Document[] {
    for (const document of documents) {
      const parsed = v.safeParse(versioned, document)
      if (!parsed.success || !this.#version.reads.includes(parsed.output.schemaVersion)) {
        throw new FatalError(
          'MetadataVersion',
          `a document of ${this.#database}.${collection} on ${this.#cluster.name} has the schema version ${String(document['schemaVersion'] ?? 'none')}; ` +
            `this version of tandem reads only ${this.#version.reads.join(' and ')}. Use the version of tandem that stored it, or a later one, for all instances. Nothing was changed.`,
        )
      }
    }
    return documents
  }

  /** Runs an aggregation with read concern majority. */
  async aggregate(collection: string, pipeline: Document[]): Promise<Document[]> {
    return await this.#read(collection, { aggregate: collection, pipeline, cursor: {} })
  }

  /**
   * Returns the distinct values of the field `key` in the matching documents, in one reply. With an index on the fields of
   * `query` and on `key`, the server reads no documents.
   */
  async distinct(collection: string, key: string, query: Document): Promise<unknown[]> {
    return await retry(`reading ${this.#database}.${collection}`, this.#context, async () => {
      const command = { distinct: collection, key, query, readConcern: { level: 'majority' } }
      return (await this.#cluster.read(this.#database, command))['values'] as unknown[]
    })
  }

  #read(collection: string, command: Document): Promise<Document[]> {
    return retry(`reading ${this.#database}.${collection}`, this.#context, () => this.#readOnce(command))
  }

  async #readOnce(command: Document): Promise<Document[]> {
    const majority = { ...command, readConcern: { level: 'majority' } }
    const read = await RawCursor.readAll(this.#cluster, this.#database, majority)
    return await inSlices(read, (bytes) => BSON.deserialize(bytes))
  }

  /** Replaces or creates the document with this `_id`. */
  async replace(collection: string, id: unknown, fields: Document): Promise<void> {
    await this.update(collection, [{ q: { _id: id }, u: fields, upsert: true }])
  }

  /** Returns how many documents the statements matched or created. */
  async update(collection: string, updates: StoredUpdate[]): Promise<number> {
    return await this.#eachPart(updates, (part) => ({
      update: collection,
      updates: part.map((update) => ({ ...update, u: this.#withVersion(update.u) })),
    }))
  }

  /**
   * Updates one document and returns it, in one round trip. Returns null when no document matches. It may also return
   * null after the update took effect: if the reply is lost, the update is sent again, and the changed document may no
   * longer match.
   * @param upsert creates the document if none has this `_id`. The result is null if one has it but does not match, or if
   * another client inserts one during the command
   */
  async findAndUpdate(collection: string, query: Document, update: Document, upsert = false): Promise<Document | null> {
    const command = { findAndModify: collection, query, update: this.#withVersion(update), new: true, upsert }
    return await retry('writing metadata', this.#context, async () => {
      try {
        const reply = await this.#cluster.write(this.#database, { ...command })
        return reply['value'] as Document | null
      } catch (error) {
        if (upsert && codeOf(error) === code.duplicateKey) return null
        throw error
      }
    })
  }

  /**
   * Runs upserts whose filters exclude documents that a later epoch or term has written. Throws FatalError LeaseLost if
   * there is such a document.
   */
  async updateFenced(collection: string, updates: StoredUpdate[]): Promise<void> {
    try {
      await this.update(collection, updates)
    } catch (error) {
      // The filter does not match a document of a later epoch, so the upsert collides with its _id.
      if (!(error instanceof MetadataWriteError) || error.code !== code.duplicateKey) throw error
      throw new FatalError(
        'LeaseLost',
        `storing progress in ${this.#database}.${collection}: another instance has taken over, and this one has stopped writing ` +
          `(${errorText(error)}). Use the other instance; to use this one, stop the other and restart this process. ${notLost.progress}`,
        { cause: error },
      )
    }
  }

  async delete(collection: string, deletes: { q: Document; limit: 0 | 1 }[]): Promise<void> {
    await this.#eachPart(deletes, (part) => ({ delete: collection, deletes: part }))
  }

  /**
   * Removes all documents that match `filter`, however many there are. They are read and removed in pages, because the
   * server ends each command after `writeLimitMS`. A single command that does not finish in time removes nothing, and its
   * retries would not finish either. A removal that is interrupted has removed whole pages.
   * @param guard repeated in each delete, so that a delayed delete matches no document of the same `_id` that was
   * stored again later
   */
  async deleteAll(collection: string, filter: Document, guard: Document = {}): Promise<void> {
    const find = { find: collection, filter: { ...filter, ...guard }, projection: { _id: 1 }, batchSize: statementsMax }
    await retry(`removing documents from ${this.#database}.${collection}`, this.#context, async (progressed) => {
      const cursor = await RawCursor.open(this.#cluster, this.#database, {
        ...find,
        readConcern: { level: 'majority' },
      })
      try {
        // A getMore without a batch size returns 16 MiB: hundreds of thousands of `_id`s, and a statement for each.
        const next = () => cursor.next({ batchSize: statementsMax })
        for (let page = await next(); page; page = await next()) {
          const ids = page.documents.map((bytes) => BSON.deserialize(bytes, { promoteValues: false })['_id'] as unknown)
          await this.delete(
            collection,
            ids.map((id) => ({ q: { _id: id, ...guard }, limit: 1 })),
          )
          progressed(true)
        }
      } finally {
        await cursor.close()
      }
    })
  }

  /** Removes all documents of the collection. */
  async clear(collection: string): Promise<void> {
    await this.deleteAll(collection, {})
  }

  async createIndexes(
    collection: string,
    indexes: { key: Document; name: string }[],
    options: Pick<CommandOptions, 'timeoutMS'> = {},
  ): Promise<void> {
    await retry('creating metadata indexes', this.#context, () =>
      this.#cluster.write(this.#database, { createIndexes: collection, indexes }, options),
    )
  }

  async #eachPart<T>(all: T[], command: (part: T[]) => Document): Promise<number> {
    let matched = 0
    let to = 0
    while (to < all.length) {
      const from = to
      for (let bytes = 0; to < all.length && to - from < statementsMax; to++) {
        bytes += BSON.calculateObjectSize(all[to] as Document)
        if (bytes > bytesMax && to > from) break
      }
      const sent = command(all.slice(from, to))
      matched += await retry('writing metadata', this.#context, async () => {
        const reply = await this.#cluster.write(this.#database, { ...sent })
        const [failed] = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
        if (failed) throw this.#cluster.named(new MetadataWriteError(failed.code, failed.errmsg), this.#database, sent)
        return Number(reply['n'])
      })
    }
    return matched
  }

  #withVersion(update: Document | Document[]): Document {
    const schemaVersion = this.#version.writes
    // A pipeline changes an existing document, which already has its version.
    if (Array.isArray(update)) return update
    if (!('$set' in update)) return { ...update, schemaVersion }
    return { ...update, $set: { ...update['$set'], schemaVersion } }
  }
}

/**
 * Matches a term, an epoch or a time that is not later than the given one. Also matches a missing field, because earlier
 * releases stored documents without it.
 */
export function notOfLater(term: number | Timestamp): Document {
  return { $not: { $gt: term } }
}

/** The server refused a statement of a write to the metadata database. */
export class MetadataWriteError extends Error {
  readonly code: number
  constructor(errorCode: number, message: string) {
    super(message)
    this.name = 'MetadataWriteError'
    this.code = errorCode
  }
}

/** The bytes of a stored binary value. */
export function bytesOf(value: unknown): Buffer {
  return Buffer.from((value as Binary).buffer)
}
