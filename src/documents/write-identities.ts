import type { CatalogueEntry } from '../domain/catalogue.ts'
import { isCollated } from '../domain/definition.ts'
import { assert, FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { isKeyed, type ShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { MovedError } from '../mongo/collection-name.ts'
import { code, TransientReplyError } from '../mongo/errors.ts'
import { existingIds } from './existing-ids.ts'
import { idElementOf } from './identity.ts'
import { deleteStatement, keyedUpsert, upsertStatement } from './statements.ts'
import { type CollectionTarget, type StatementError, writeStatements } from './write-documents.ts'

/** Attempts to write a document that an index refuses, after dropping indexes that the source no longer has. */
const refusedAttemptsMax = 5

/**
 * Writes whole documents so that the destination ends up with exactly these bytes, whatever it held before. Each method
 * is repeatable. Transient errors are thrown for the caller's retry.
 */
export class DocumentWriter {
  readonly #destination: Cluster
  readonly #dropVanishedIndexes: (entry: CatalogueEntry) => Promise<boolean>

  /**
   * @param dropVanishedIndexes drops the destination's indexes that the source collection no longer has, and returns
   * true when it dropped one. A document may be newer than the drop of an index on the source.
   */
  constructor(destination: Cluster, dropVanishedIndexes: (entry: CatalogueEntry) => Promise<boolean>) {
    this.#destination = destination
    this.#dropVanishedIndexes = dropVanishedIndexes
  }

  /** Inserts in the given order. A document whose `_id` exists replaces the existing document. */
  async insert(entry: CatalogueEntry, documents: Buffer[]): Promise<void> {
    await this.upsert(entry, await this.insertNew(entry, documents))
  }

  /** Inserts, and returns the documents whose `_id` already exists. */
  async insertNew(entry: CatalogueEntry, documents: Buffer[]): Promise<Buffer[]> {
    if (documents.length === 0) return []
    const failed = await writeStatements(this.#destination, targetOf(entry), 'insert', documents)
    const existing: Buffer[] = []
    for (const error of failed) {
      const document = documents[error.index] as Buffer
      if (error.code === code.duplicateKey) existing.push(document)
      else await this.#refused(entry, error, () => this.upsert(entry, [document]))
    }
    return existing
  }

  async upsert(entry: CatalogueEntry, documents: Buffer[], attempt = 1): Promise<void> {
    if (documents.length === 0) return
    if (entry.shardKey && isKeyed(entry)) return await this.#upsertKeyed(entry, entry.shardKey, documents, attempt)
    const statements = documents.map((document) => upsertStatement(idElementOf(document), document))
    await this.#update(entry, documents, statements, attempt)
  }

  /**
   * For collections in which an `_id` may exist on several shards. Other copies are removed first, so that a document
   * whose shard key changed is not duplicated. The reverse order would never hide the document from readers, but a
   * unique index may refuse the new copy because of the old one.
   */
  async #upsertKeyed(entry: CatalogueEntry, key: ShardKey, documents: Buffer[], attempt: number): Promise<void> {
    const removals: Buffer[] = []
    const upserts: Buffer[] = []
    const upserted: Buffer[] = []
    const reinserted: Buffer[] = []
    for (const document of documents) {
      const idElement = idElementOf(document)
      // Under a collation, the document may exist with another spelling, which a comparison by bytes misses.
      const statements = isCollated(entry.wanted.options) ? null : keyedUpsert(idElement, document, key)
      if (!statements) {
        removals.push(deleteStatement(idElement, true))
        reinserted.push(document)
      } else {
        removals.push(statements.removeOthers)
        upserts.push(statements.upsert)
        upserted.push(document)
      }
    }
    const [failed] = await writeStatements(this.#destination, targetOf(entry), 'delete', removals)
    if (failed) throw moved(entry, failed) ?? refusal(entry, failed)
    if (upserts.length > 0) await this.#update(entry, upserted, upserts, attempt)
    for (const document of reinserted) await this.#insertAfterDelete(entry, document)
  }

  async #update(entry: CatalogueEntry, documents: Buffer[], statements: Buffer[], attempt: number): Promise<void> {
    const failed = await writeStatements(this.#destination, targetOf(entry), 'update', statements)
    for (const error of failed) {
      const document = documents[error.index] as Buffer
      switch (error.code) {
        case code.duplicateKey:
          // The copy inserted the document between the upsert's read and its insert. Now it can be replaced.
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
          // An insert accepts what a replacement does not: another spelling of the `_id` under a collation, a new size
          // in a capped collection, and top-level names that begin with a dollar sign.
          await this.delete(entry, [idElementOf(document)])
          await this.#insertAfterDelete(entry, document)
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

  async #insertAfterDelete(entry: CatalogueEntry, document: Buffer): Promise<void> {
    const [failed] = await writeStatements(this.#destination, targetOf(entry), 'insert', [document])
    if (!failed) return
    if (failed.code === code.duplicateKey && (await this.#isSameId(entry, failed, idElementOf(document))))
      throw new TransientReplyError('the copy re-inserted a document being replaced')
    throw moved(entry, failed) ?? refusal(entry, failed)
  }

  /**
   * Whether an insert was refused because its `_id` exists. Reads the destination when the server's reply does not say.
   */
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

function moved(entry: CatalogueEntry, error: StatementError): Error | null {
  if (error.code !== code.collectionUUIDMismatch && error.code !== code.namespaceNotFound) return null
  return new MovedError(
    `${namespace(entry.database, entry.name)} on the destination is not the collection tandem created (${error.message})`,
  )
}

function refusal(entry: CatalogueEntry, error: StatementError): FatalError {
  // The server's message may quote values of the document, so only its code is passed on.
  return new FatalError(
    'DocumentRefused',
    `writing documents: the destination refuses one of ${namespace(entry.database, entry.name)} with server error ${error.code}. ` +
      `Find the index or the limit on the destination that the source does not have, remove it and send resume. ${notLost.progress}`,
  )
}
