import { setTimeout as sleep } from 'node:timers/promises'
import type { CatalogEntry } from '../domain/catalog.ts'
import { isCollated } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { bsonType, fieldNamed } from '../domain/raw-bson.ts'
import { isKeyed, mayRepeatIds } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { describeId } from '../mongo/verification-store.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { readByIds } from './read-documents.ts'

/**
 * The number of reads. One is not enough: during the transaction that moves a document because its shard key changed, a
 * read may return the document from both shards.
 */
const attemptsMax = 4
export const betweenReadsMS = 250

/**
 * True if the destination can hold several documents with one `_id`, on different shards. Under a collation, tandem
 * compares `_id`s only by a read that cannot tell such documents from two spellings of one `_id`.
 */
export function canRepeatIds(destination: { sharded: boolean }, entry: CatalogEntry): boolean {
  return destination.sharded && isKeyed(entry) && !isCollated(entry.wanted.options)
}

/**
 * Throws FatalError DuplicateDocumentId when each of several reads returns two source documents with this `_id`, or with
 * `_id`s that are equal to it under the collation of the collection. Each shard enforces the uniqueness of `_id` only
 * locally, so a collection with another shard key may hold duplicates.
 * @param reason why the destination cannot hold all of these documents
 */
export async function refuseDuplicate(
  source: Cluster,
  entry: CatalogEntry,
  idElement: Buffer,
  reason = 'the destination can store only one',
): Promise<void> {
  const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  const found: string[] = []
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    if (attempt > 0) await sleep(betweenReadsMS)
    found.length = 0
    for await (const documents of readByIds(source, collection, [idOf(idElement)], source.latest)) {
      found.push(...documents.map((document) => describeId(idElementOf(document))))
    }
    if (found.length < 2) return
  }
  const ids = [...new Set(found)]
  throw new FatalError(
    'DuplicateDocumentId',
    `${namespace(entry.database, entry.name)} on the source holds several documents with _id ${ids.join(', ')}${ids.length > 1 ? ' (which are equal under its collation)' : ''}, ` +
      `on different shards, and ${reason}. Remove or change all but one of them on the source, then send resume. ${notLost.progress}`,
  )
}

/**
 * Returns one `_id` of each group of `_id`s that are equal under the collation of the source's collection. The server
 * compares them, because only its own version of ICU knows its rules. It reads no documents for that.
 */
export async function equalUnderCollation(
  source: Cluster,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
): Promise<Buffer[]> {
  const collation = fieldNamed(entry.wanted.options, 'collation')
  const affected = idElements.filter(([type]) => affectedTypes.has(type as number))
  if (!collation || !isCollated(entry.wanted.options) || affected.length < 2) return []
  const equal: Buffer[] = []
  // Equal `_id`s of a range are adjacent. Consecutive commands overlap by one `_id`, so that each pair of neighbours is
  // in one command.
  for (let from = 0; from < affected.length - 1; from += comparedAtOnce) {
    const part = affected.slice(from, from + comparedAtOnce + 1)
    const command = {
      aggregate: 1,
      pipeline: [
        { $documents: part.map((idElement, at) => ({ at, id: { $literal: new RawValue(idOf(idElement)) } })) },
        { $group: { _id: '$id', at: { $push: '$at' } } },
        { $match: { 'at.1': { $exists: true } } },
        { $project: { _id: 0, at: { $first: '$at' } } },
      ],
      collation: new RawValue(collation),
      cursor: { batchSize: comparedAtOnce + 1 },
    }
    const found = (await source.read(entry.database, command))['cursor'].firstBatch as { at: number }[]
    equal.push(...found.map(({ at }) => part[at] as Buffer))
  }
  return equal
}

/** The types that a collation compares differently: text, and documents that may contain text. */
const affectedTypes = new Set<number>([bsonType.string, bsonType.document])
/** Keeps a command below 16 MB, because an `_id` is longer than 16 KB only in rare cases. */
const comparedAtOnce = 500

/**
 * Finds `_id`s that exist on two shards of the source while a range of a collection is read. In `_id` order, documents
 * with equal `_id`s are adjacent.
 */
export class AdjacentIds {
  readonly #source: Cluster
  readonly #destination: Cluster
  readonly #entry: CatalogEntry
  #last: Buffer | null = null

  private constructor(source: Cluster, destination: Cluster, entry: CatalogEntry) {
    this.#source = source
    this.#destination = destination
    this.#entry = entry
  }

  /** Returns null if the source cannot hold two documents with the same `_id`. */
  static of(source: Cluster, destination: Cluster, entry: CatalogEntry): AdjacentIds | null {
    return mayRepeatIds(source, destination, entry) ? new AdjacentIds(source, destination, entry) : null
  }

  /**
   * Returns the `_id` elements that at least two of the documents have. The caller records them, and all documents with
   * these `_id`s are compared when the copy has ended. The copy itself cannot do that: if a shard of the destination
   * refuses a document because of its `_id`, the shard may have the same document or another one.
   * Throws FatalError DuplicateDocumentId if the destination can hold only one of them. A document that is only being
   * moved between shards is then ignored, because its event corrects the destination.
   * @param documents the next documents of the range
   */
  async check(documents: Buffer[]): Promise<Buffer[]> {
    const repeated = new Map<IdentityKey, Buffer>()
    let before = this.#last && identityKey(this.#last)
    const read = this.#last ? [this.#last] : []
    for (const document of documents) {
      const idElement = idElementOf(document)
      read.push(idElement)
      const key = identityKey(idElement)
      if (key === before) repeated.set(key, Buffer.from(idElement))
      before = key
    }
    const last = read.at(-1)
    if (canRepeatIds(this.#destination, this.#entry)) {
      if (last) this.#last = Buffer.from(last)
      return [...repeated.values()]
    }
    for (const idElement of repeated.values()) await refuseDuplicate(this.#source, this.#entry, idElement)
    for (const idElement of await equalUnderCollation(this.#source, this.#entry, read))
      await refuseDuplicate(this.#source, this.#entry, idElement)
    if (last) this.#last = Buffer.from(last)
    return []
  }
}
