import type { Document } from 'mongodb'
import { type AuditEntry, auditEntriesMax } from '../domain/audit-entry.ts'
import type { Cluster } from './cluster.ts'
import { code } from './errors.ts'
import { UnfencedMetadata } from './unfenced-metadata.ts'

const collection = 'audit'
/**
 * Time limit of a database command, by the client's clock. One command that gets no answer must not delay the
 * entries that are added after it.
 */
const answerMS = 5_000
const newestFirst = { time: -1, _id: -1 }
/**
 * Version 1 has no `token`, and contains a command only together with its outcome. Releases that only know version 1
 * skip version 2.
 */
const schemaVersion = 2
const readableVersions = [1, schemaVersion]

/**
 * The audit trail of the commands of all instances: collection `audit` of the metadata database. Nothing is retried,
 * and no lease is needed, because an entry belongs to the one process that received the command.
 */
export class AuditStore {
  readonly #metadata: UnfencedMetadata
  constructor(destination: Cluster, timeoutMS = answerMS) {
    this.#metadata = new UnfencedMetadata(destination, { timeoutMS })
  }

  /**
   * Adds entries, and removes the oldest beyond `auditEntriesMax`. The entry with the outcome of a command replaces its
   * receipt (outcome `received`). A receipt never replaces an entry, because the receipt may reach the server last.
   */
  async add(entries: readonly AuditEntry[]): Promise<void> {
    const documents = entries.map(({ id, ...entry }) => ({ _id: id, ...entry, schemaVersion }))
    const receipts = documents.filter(({ outcome }) => outcome === 'received')
    const answered = documents.filter(({ outcome }) => outcome !== 'received')
    if (receipts.length > 0) await this.#write({ insert: collection, documents: receipts, ordered: false })
    if (answered.length > 0) {
      const updates = answered.map((document) => ({ q: { _id: document._id }, u: document, upsert: true }))
      await this.#write({ update: collection, updates, ordered: false })
    }
    const [beyond] = await this.#find({ sort: newestFirst, skip: auditEntriesMax, limit: 1 })
    if (!beyond) return
    const older = { $or: [{ time: { $lt: beyond['time'] } }, { time: beyond['time'], _id: { $lte: beyond['_id'] } }] }
    await this.#write({ delete: collection, deletes: [{ q: older, limit: 0 }] })
  }

  /** Returns all entries, newest first. Omits entries that a later release stored in another form. */
  async read(): Promise<AuditEntry[]> {
    const found = await this.#find({ filter: { schemaVersion: { $in: readableVersions } }, sort: newestFirst })
    return found.map(
      ({ _id, schemaVersion: _version, ...entry }) => ({ token: null, ...entry, id: _id }) as unknown as AuditEntry,
    )
  }

  async #find(options: Document): Promise<Document[]> {
    // One batch holds all entries: a thousand of them take a quarter of a megabyte.
    const command = { find: collection, ...options, batchSize: 2 * auditEntriesMax, singleBatch: true }
    return await this.#metadata.read(command)
  }

  async #write(command: Document): Promise<void> {
    const failures = (await this.#metadata.write(command)).failed
    const failed = failures.find((error) => error.code !== code.duplicateKey)
    if (failed) throw this.#metadata.refused(failed, command)
  }
}
