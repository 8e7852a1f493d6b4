import type { Document } from 'mongodb'
import { type AuditEntry, auditEntriesMax } from '../domain/audit-entry.ts'
import { metadataDatabase } from '../domain/namespace.ts'
import type { Cluster } from './cluster.ts'
import { code } from './errors.ts'
import { MetadataWriteError, metadataVersion } from './stored-documents.ts'

/** An entry under the name by which it is known to be the same one when it is sent again. */
export interface StoredEntry extends AuditEntry {
  id: string
}

const collection = 'audit'
const newestFirst = { time: -1, _id: -1 }

/**
 * The trail of commands, of all instances: collection `audit` of the metadata database. Nothing is tried again here, and
 * no lease is asked for: entries are only ever added, and whoever waits for one does not hold up a sync.
 */
export class AuditStore {
  readonly #cluster: Cluster
  constructor(destination: Cluster) {
    this.#cluster = destination
  }

  /** Adds what is not there yet, and forgets the oldest beyond `auditEntriesMax`. */
  async add(entries: readonly StoredEntry[]): Promise<void> {
    const documents = entries.map(({ id, ...entry }) => ({ _id: id, ...entry, schemaVersion: metadataVersion }))
    await this.#write({ insert: collection, documents, ordered: false })
    const [beyond] = await this.#find({ sort: newestFirst, skip: auditEntriesMax, limit: 1 })
    if (!beyond) return
    const older = { $or: [{ time: { $lt: beyond['time'] } }, { time: beyond['time'], _id: { $lte: beyond['_id'] } }] }
    await this.#write({ delete: collection, deletes: [{ q: older, limit: 0 }] })
  }

  /** The newest first. What another version of tandem stored in another form is left out. */
  async read(): Promise<StoredEntry[]> {
    const found = await this.#find({ filter: { schemaVersion: metadataVersion }, sort: newestFirst })
    return found.map(({ _id, schemaVersion: _version, ...entry }) => ({ id: _id, ...entry }) as unknown as StoredEntry)
  }

  async #find(options: Document): Promise<Document[]> {
    // One batch: a thousand entries are a quarter of a megabyte.
    const command = { find: collection, ...options, batchSize: 2 * auditEntriesMax, singleBatch: true }
    const reply = await this.#cluster.read(metadataDatabase, { ...command, readConcern: { level: 'majority' } })
    return reply['cursor'].firstBatch as Document[]
  }

  async #write(command: Document): Promise<void> {
    const reply = await this.#cluster.write(metadataDatabase, command, { unfenced: true })
    const errors = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
    const failed = errors.find((error) => error.code !== code.duplicateKey)
    if (failed) throw new MetadataWriteError(failed.code, failed.errmsg)
  }
}
