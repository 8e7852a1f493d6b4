import type { CatalogEntry } from '../domain/catalog.ts'
import { addCircumstances } from '../domain/circumstances.ts'
import { isCollated } from '../domain/definition.ts'
import { errorText } from '../domain/error-text.ts'
import { assert, FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { isKeyed, type ShardKey } from '../domain/shard-key.ts'
import type { WorkMeter } from '../domain/work-meter.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { MovedError } from '../mongo/collection-name.ts'
import { code, TransientReplyError } from '../mongo/errors.ts'
import { describeId } from '../mongo/verification-store.ts'
import { existingIds } from './existing-ids.ts'
import { idElementOf } from './identity.ts'
import { deleteStatement, keyedUpsert, upsertStatement } from './statements.ts'
import {
  type CollectionTarget,
  type StatementError,
  updateExisting,
  type Verb,
  writeStatements,
} from './write-documents.ts'
import { documentParts } from './write-in-parts.ts'

/** The number of times that a write is repeated when the destination refuses it. */
const refusedAttemptsMax = 5

/**
 * Writes whole documents so that the destination ends up with exactly these bytes, whatever it held before. Each method
 * is repeatable. Transient errors are thrown for the caller's retry.
 */
export class DocumentWriter {
  readonly #destination: Cluster
  readonly #dropVanishedIndexes: (entry: CatalogEntry) => Promise<boolean>
  readonly #meter: WorkMeter | null

  /**
   * @param dropVanishedIndexes drops the destination's indexes that the source collection no longer has, and returns
   * true when it dropped one. A document may have been written on the source after an index was dropped there, and
   * before tandem drops that index on the destination.
   * @param meter measures the writes; null if they are not measured
   */
  constructor(
    destination: Cluster,
    dropVanishedIndexes: (entry: CatalogEntry) => Promise<boolean>,
    meter: WorkMeter | null = null,
  ) {
    this.#destination = destination
    this.#dropVanishedIndexes = dropVanishedIndexes
    this.#meter = meter
  }

  /** Inserts in the given order. A document whose `_id` exists replaces the existing document. */
  async insert(entry: CatalogEntry, documents: Buffer[]): Promise<void> {
    await this.upsert(entry, await this.insertNew(entry, documents))
  }

  /**
   * Inserts, and returns the documents whose `_id` already exists. In a collection in which an `_id` may exist on several
   * shards, also returns documents that the destination refuses for another reason, because a replacement would remove
   * other documents with these `_id`s.
   */
  async insertNew(entry: CatalogEntry, documents: Buffer[]): Promise<Buffer[]> {
    if (documents.length === 0) return []
    const failed = await this.#write(entry, 'insert', documents)
    const existing: Buffer[] = []
    for (const error of failed) {
      const document = documents[error.index] as Buffer
      const elsewhere = moved(this.#destination, entry, error)
      if (elsewhere) throw elsewhere
      if (error.code === code.duplicateKey || isKeyed(entry)) existing.push(document)
      else await this.#refused(entry, error, document, () => this.upsert(entry, [document]))
    }
    return existing
  }

  async upsert(entry: CatalogEntry, documents: Buffer[], attempt = 1): Promise<void> {
    if (documents.length === 0) return
    if (entry.shardKey && isKeyed(entry)) return await this.#upsertKeyed(entry, entry.shardKey, documents, attempt)
    const statements = documents.map((document) => upsertStatement(idElementOf(document), document))
    await this.#update(entry, documents, statements, attempt)
  }

  /**
   * Writes documents that the destination does not have under other shard key values (`placedElsewhere`,
   * `replacePlaced`), so nothing has to be removed. Filters must be able to express their shard key values.
   */
  async upsertInPlace(entry: CatalogEntry, documents: Buffer[]): Promise<void> {
    const key = entry.shardKey ?? []
    const statements = documents.map((document) => keyedUpsert(idElementOf(document), document, key)?.upsert)
    assert(
      statements.every((statement) => statement !== undefined),
      'a filter cannot express these shard key values',
    )
    if (documents.length > 0) await this.#update(entry, documents, statements, 1)
  }

  /**
   * Writes documents of collections in which an `_id` may exist on several shards. Removes other copies first, so that a
   * document whose shard key changed is not duplicated. The reverse order would never hide the document from readers,
   * but a unique index may refuse the new copy because of the old one.
   */
  async #upsertKeyed(entry: CatalogEntry, key: ShardKey, documents: Buffer[], attempt: number): Promise<void> {
    const removals: Buffer[] = []
    const upserts: Buffer[] = []
    const upserted: Buffer[] = []
    const reinserted: Buffer[] = []
    for (const document of documents) {
      const idElement = idElementOf(document)
      // Under a collation, the document may exist with another spelling of its `_id`. A comparison by bytes misses it.
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
    const [failed] = await this.#write(entry, 'delete', removals)
    if (failed) {
      const idElement = idElementOf(documents[failed.index] as Buffer)
      throw moved(this.#destination, entry, failed) ?? this.#refusal(entry, failed, idElement)
    }
    if (upserts.length > 0) await this.#update(entry, upserted, upserts, attempt)
    for (const document of reinserted) await this.#insertAfterDelete(entry, document)
  }

  async #update(entry: CatalogEntry, documents: Buffer[], statements: Buffer[], attempt: number): Promise<void> {
    const failed = await this.#write(entry, 'update', statements)
    for (const error of failed) {
      const document = documents[error.index] as Buffer
      switch (error.code) {
        case code.duplicateKey:
          // Usually the copy inserted the document between the upsert's read and its insert, and now it can be replaced.
          // If the error remains, another unique index or an orphaned document causes it.
          if (attempt > refusedAttemptsMax)
            throw orphaned(entry, error) ?? this.#refusal(entry, error, idElementOf(document))
          await this.upsert(entry, [document], attempt + 1)
          break
        case code.immutableField:
        case code.shardKeyNotFound:
        case code.cannotChangeCappedSize:
        case code.dollarPrefixedFieldName:
        case code.invalidDBRef:
        case code.invalidDBRefId:
        case code.invalidDBRefDatabase:
        case code.objectTooLarge:
          // An insert accepts what a replacement does not: another spelling of the `_id` under a collation, a new size
          // in a capped collection, and top-level names that begin with a dollar sign. A document that is too large for
          // one statement is inserted in parts.
          await this.delete(entry, [idElementOf(document)])
          await this.#insertAfterDelete(entry, document)
          break
        default:
          await this.#refused(entry, error, document, () => this.upsert(entry, [document], attempt + 1), attempt)
      }
    }
  }

  async delete(entry: CatalogEntry, idElements: Buffer[]): Promise<void> {
    if (idElements.length === 0) return
    const everywhere = isKeyed(entry)
    await this.remove(
      entry,
      idElements,
      idElements.map((idElement) => deleteStatement(idElement, everywhere)),
    )
  }

  /**
   * Sends statements that delete documents with these `_id`s, in the same order. Returns how many documents they have
   * removed.
   */
  async remove(entry: CatalogEntry, idElements: readonly Buffer[], statements: Buffer[]): Promise<number> {
    if (statements.length === 0) return 0
    let removed = 0
    const [failed] = await this.#write(entry, 'delete', statements, (count) => {
      removed += count
    })
    if (failed)
      throw moved(this.#destination, entry, failed) ?? this.#refusal(entry, failed, idElements[failed.index] as Buffer)
    return removed
  }

  /**
   * Removes documents with one `_id`, and inserts others with it. Unlike the other methods it never removes a document
   * that no statement names, because each of these documents may be wanted (repeated-ids.ts). Returns the first document
   * that the `_id` index of a shard refuses, because the shard has a document with this `_id`; null if none is refused.
   */
  async replaceRepeated(
    entry: CatalogEntry,
    idElement: Buffer,
    removals: Buffer[],
    inserted: readonly Buffer[],
  ): Promise<Buffer | null> {
    const idElements = removals.map(() => idElement)
    await this.remove(entry, idElements, removals)
    for (const document of inserted) {
      const [failed] = await this.#write(entry, 'insert', [document])
      if (!failed) continue
      if (failed.code === code.duplicateKey && failed.ofOtherIndex !== true) return document
      if (failed.code === code.objectTooLarge) await this.#insertInParts(entry, document, failed)
      else if (failed.code === code.duplicateKey && (await this.#dropVanishedIndexes(entry)))
        throw new TransientReplyError('an index that refused a document was dropped')
      else throw moved(this.#destination, entry, failed) ?? this.#refusal(entry, failed, idElement)
    }
    return null
  }

  async #write(
    entry: CatalogEntry,
    verb: Verb,
    statements: Buffer[],
    counted?: (affected: number) => void,
  ): Promise<StatementError[]> {
    const write = (): Promise<StatementError[]> =>
      writeStatements(this.#destination, targetOf(entry), verb, statements, counted)
    return await (this.#meter?.time('applyWrite', write) ?? write())
  }

  async #insertAfterDelete(entry: CatalogEntry, document: Buffer): Promise<void> {
    const [failed] = await this.#write(entry, 'insert', [document])
    if (!failed) return
    const idElement = idElementOf(document)
    if (failed.code === code.duplicateKey && (await this.#isSameId(entry, failed, idElement)))
      throw new TransientReplyError('the copy re-inserted a document being replaced')
    if (failed.code === code.objectTooLarge) return await this.#insertInParts(entry, document, failed)
    throw moved(this.#destination, entry, failed) ?? this.#refusal(entry, failed, idElement)
  }

  /** @param tooLarge the error of the insert of the whole document */
  async #insertInParts(entry: CatalogEntry, document: Buffer, tooLarge: StatementError): Promise<void> {
    const keyFields = new Set((entry.shardKey ?? []).map(({ path }) => path.split('.')[0] as string))
    const idElement = idElementOf(document)
    const parts = documentParts(idElement, document, keyFields)
    if (!parts) throw this.#refusal(entry, tooLarge, idElement)
    const replaced = () => new TransientReplyError('a document was replaced while it was written in parts')
    const [failed] = await this.#write(entry, 'insert', [parts.insert])
    if (failed?.code === code.duplicateKey && failed.ofOtherIndex !== true) throw replaced()
    if (failed) throw moved(this.#destination, entry, failed) ?? this.#refusal(entry, failed, idElement)
    for (const update of parts.updates) {
      const outcome = await updateExisting(this.#destination, targetOf(entry), update)
      if (outcome === 'unmatched') throw replaced()
      if (outcome) throw moved(this.#destination, entry, outcome) ?? this.#refusal(entry, outcome, idElement)
    }
  }

  /**
   * Resolves with true if an insert was refused because its `_id` exists. Reads the destination when the server's reply
   * does not name the index.
   */
  async #isSameId(entry: CatalogEntry, { ofOtherIndex }: StatementError, idElement: Buffer): Promise<boolean> {
    if (ofOtherIndex !== null) return !ofOtherIndex
    return isKeyed(entry) || (await existingIds(this.#destination, targetOf(entry), [idElement])).size > 0
  }

  async #refused(
    entry: CatalogEntry,
    error: StatementError,
    document: Buffer,
    again: () => Promise<void>,
    attempt = 1,
  ): Promise<void> {
    const elsewhere = moved(this.#destination, entry, error)
    if (elsewhere) throw elsewhere
    const refusal = () => this.#refusal(entry, error, idElementOf(document))
    if (attempt > refusedAttemptsMax) throw refusal()
    if (!(await this.#dropVanishedIndexes(entry)) && attempt > 1) throw refusal()
    await again()
  }

  #refusal({ database, name }: CatalogEntry, error: StatementError, idElement: Buffer): FatalError {
    const of = this.#destination.names.shown(namespace(database, name))
    const cause = new RefusedStatement(error)
    addCircumstances(cause, { cluster: this.#destination.name, command: error.command, namespace: of })
    return new FatalError(
      'DocumentRefused',
      `writing documents: the destination refuses the document of ${of} with _id ${describeId(idElement)} (${errorText(cause)}). ` +
        `Find the index or the limit on the destination that the source does not have, remove it and send resume. ${notLost.progress}`,
      { cause },
    )
  }
}

export function targetOf(entry: CatalogEntry): CollectionTarget {
  assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} has no counterpart on the destination yet`)
  return { database: entry.database, name: entry.name, uuid: entry.destinationUUID }
}

function moved(destination: Cluster, entry: CatalogEntry, error: StatementError): Error | null {
  if (error.code !== code.collectionUUIDMismatch && error.code !== code.namespaceNotFound) return null
  return new MovedError(movedText(destination, entry, error))
}

export function movedText({ names }: Cluster, { database, name }: CatalogEntry, error: unknown): string {
  return `${names.shown(namespace(database, name))} on the destination is not the collection that tandem writes to (${errorText(error)})`
}

/**
 * After a chunk has moved to another shard, the former shard deletes its documents, by default after 15 minutes. Until
 * then, neither reads nor deletes through mongos find them, but a document with the same `_id` that is inserted on that
 * shard causes a duplicate key error (measured on 6.0.27).
 */
function orphaned(entry: CatalogEntry, error: StatementError): Error | null {
  if (!isKeyed(entry) || error.ofOtherIndex !== false) return null
  return new TransientReplyError('the shard still has an orphaned document with the same _id')
}

class RefusedStatement extends Error {
  readonly code: number
  constructor({ code: value, message }: StatementError) {
    super(message)
    this.name = 'RefusedStatement'
    this.code = value
  }
}
