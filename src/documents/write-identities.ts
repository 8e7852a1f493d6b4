import type { CatalogueEntry } from '../domain/catalogue.ts'
import { isCollated } from '../domain/definition.ts'
import { assert, FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { isKeyed, type ShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, TransientReplyError } from '../mongo/errors.ts'
import { existingIds } from './existing-ids.ts'
import { idElementOf } from './identity.ts'
import { deleteStatement, keyedUpsert, upsertStatement } from './statements.ts'
import { type CollectionTarget, type StatementError, writeStatements } from './write-documents.ts'

/** How often a document that an index refuses is tried again, after dropping indexes the source no longer has. */
const refusedAttemptsMax = 5

/**
 * Writes whole documents so that the destination ends up with exactly these bytes, whatever stood there. Each method
 * may be repeated. Passing errors are thrown for the caller's retry.
 */
export class DocumentWriter {
  readonly #destination: Cluster
  readonly #dropVanishedIndexes: (entry: CatalogueEntry) => Promise<boolean>

  /**
   * @param dropVanishedIndexes drops on the destination what the source's collection has no longer, and says whether it
   * dropped any: a document may come from a time after the index was dropped on the source.
   */
  constructor(destination: Cluster, dropVanishedIndexes: (entry: CatalogueEntry) => Promise<boolean>) {
    this.#destination = destination
    this.#dropVanishedIndexes = dropVanishedIndexes
  }

  /** Inserts; what meets its `_id` already there replaces it. Order of insertion is the order given. */
  async insert(entry: CatalogueEntry, documents: Buffer[]): Promise<void> {
    await this.upsert(entry, await this.insertNew(entry, documents))
  }

  /** Inserts, and returns what met its `_id` already there. */
  async insertNew(entry: CatalogueEntry, documents: Buffer[]): Promise<Buffer[]> {
    if (documents.length === 0) return []
    const failed = await writeStatements(this.#destination, targetOf(entry), 'insert', documents)
    const standing: Buffer[] = []
    for (const error of failed) {
      const document = documents[error.index] as Buffer
      if (error.code === code.duplicateKey) standing.push(document)
      else await this.#refused(entry, error, () => this.upsert(entry, [document]))
    }
    return standing
  }

  async upsert(entry: CatalogueEntry, documents: Buffer[], attempt = 1): Promise<void> {
    if (documents.length === 0) return
    if (entry.shardKey && isKeyed(entry)) return await this.#upsertKeyed(entry, entry.shardKey, documents, attempt)
    const statements = documents.map((document) => upsertStatement(idElementOf(document), document))
    await this.#update(entry, documents, statements, attempt)
  }

  /**
   * Where one `_id` may stand on several shards: other copies of it are removed first, so that a document whose key changed has
   * moved rather than multiplied. (The other way round it would be safer from being missed by a reader, but the new copy may be
   * refused by a unique index for the sake of the old one.)
   */
  async #upsertKeyed(entry: CatalogueEntry, key: ShardKey, documents: Buffer[], attempt: number): Promise<void> {
    const removals: Buffer[] = []
    const upserts: Buffer[] = []
    const upserted: Buffer[] = []
    const anew: Buffer[] = []
    for (const document of documents) {
      const idElement = idElementOf(document)
      // Where "abc" and "ABC" are one `_id` the document may stand spelled otherwise, which a key compared by bytes misses.
      const statements = isCollated(entry.wanted.options) ? null : keyedUpsert(idElement, document, key)
      if (!statements) {
        removals.push(deleteStatement(idElement, true))
        anew.push(document)
      } else {
        removals.push(statements.removeOthers)
        upserts.push(statements.upsert)
        upserted.push(document)
      }
    }
    const [failed] = await writeStatements(this.#destination, targetOf(entry), 'delete', removals)
    if (failed) throw moved(entry, failed) ?? refusal(entry, failed)
    if (upserts.length > 0) await this.#update(entry, upserted, upserts, attempt)
    for (const document of anew) await this.#insertAnew(entry, document)
  }

  async #update(entry: CatalogueEntry, documents: Buffer[], statements: Buffer[], attempt: number): Promise<void> {
    const failed = await writeStatements(this.#destination, targetOf(entry), 'update', statements)
    for (const error of failed) {
      const document = documents[error.index] as Buffer
      switch (error.code) {
        case code.duplicateKey:
          // The copy inserted it between the upsert's look and its insert; now it is there to be replaced.
          if (attempt > refusedAttemptsMax) throw refusal(entry, error)
          await this.upsert(entry, [document], attempt + 1)
          break
        case code.immutableField:
        case code.shardKeyNotFound:
        case code.cannotChangeCappedSize:
        case code.dollarPrefixedFieldName:
        case code.invalidDBRef:
        case code.invalidDBRefId:
        case code.invalidDBRefDatabase:
          // What an insert takes and a replacement does not: the same `_id` spelled differently under a collation, a new
          // size in a capped collection, top-level names that begin with a dollar sign.
          await this.delete(entry, [idElementOf(document)])
          await this.#insertAnew(entry, document)
          break
        default:
          await this.#refused(entry, error, () => this.upsert(entry, [document], attempt + 1), attempt)
      }
    }
  }

  async delete(entry: CatalogueEntry, idElements: Buffer[]): Promise<void> {
    if (idElements.length === 0) return
    const everywhere = isKeyed(entry)
    const statements = idElements.map((idElement) => deleteStatement(idElement, everywhere))
    const [failed] = await writeStatements(this.#destination, targetOf(entry), 'delete', statements)
    if (failed) throw moved(entry, failed) ?? refusal(entry, failed)
  }

  async #insertAnew(entry: CatalogueEntry, document: Buffer): Promise<void> {
    const [failed] = await writeStatements(this.#destination, targetOf(entry), 'insert', [document])
    if (!failed) return
    if (failed.code === code.duplicateKey && (await this.#isSameId(entry, failed, idElementOf(document))))
      throw new TransientReplyError('the copy re-inserted a document being replaced')
    throw moved(entry, failed) ?? refusal(entry, failed)
  }

  /** Whether an insert was refused because its `_id` is there already; asked where the server's answer does not say. */
  async #isSameId(entry: CatalogueEntry, { ofOtherIndex }: StatementError, idElement: Buffer): Promise<boolean> {
    if (ofOtherIndex !== null) return !ofOtherIndex
    return isKeyed(entry) || (await existingIds(this.#destination, targetOf(entry), [idElement])).size > 0
  }

  async #refused(entry: CatalogueEntry, error: StatementError, again: () => Promise<void>, attempt = 1): Promise<void> {
    const elsewhere = moved(entry, error)
    if (elsewhere) throw elsewhere
    if (attempt > refusedAttemptsMax) throw refusal(entry, error)
    if (!(await this.#dropVanishedIndexes(entry)) && attempt > 1) throw refusal(entry, error)
    await again()
  }
}

export function targetOf(entry: CatalogueEntry): CollectionTarget {
  assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} has no counterpart on the destination yet`)
  return { database: entry.database, name: entry.name, uuid: entry.destinationUUID }
}

/**
 * The collection is not where the catalogue has it. Renames of ours change the catalogue right after the server, and another
 * instance may have made them, so it is a passing state; if it stays, the retry's budget ends in a named failure.
 */
export class MovedError extends TransientReplyError {}

function moved(entry: CatalogueEntry, error: StatementError): Error | null {
  if (error.code !== code.collectionUUIDMismatch && error.code !== code.namespaceNotFound) return null
  return new MovedError(
    `${namespace(entry.database, entry.name)} on the destination is not the collection tandem created (${error.message})`,
  )
}

function refusal(entry: CatalogueEntry, error: StatementError): FatalError {
  // The server's message may quote values of the document; only its code is passed on.
  return new FatalError(
    'DocumentRefused',
    `the destination refuses a document of ${namespace(entry.database, entry.name)} with server error ${error.code}. ` +
      'Look for an index or a limit on the destination that the source does not have, remove it and send resume.',
  )
}
