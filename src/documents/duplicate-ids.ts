import { setTimeout as sleep } from 'node:timers/promises'
import type { CatalogEntry } from '../domain/catalog.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { mayRepeatIds } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { describeId } from '../mongo/verification-store.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { readByIds } from './read-documents.ts'

/**
 * The number of reads. One is not enough: during the transaction that moves a document because its shard key changed, a
 * read may return the document from both shards.
 */
const attemptsMax = 4
const betweenAttemptsMS = 250

/**
 * Throws FatalError DuplicateDocumentId when each of several reads returns two source documents with this `_id`. Each
 * shard enforces the uniqueness of `_id` only locally, so a collection with another shard key may hold duplicates.
 */
export async function refuseDuplicate(source: Cluster, entry: CatalogEntry, idElement: Buffer): Promise<void> {
  const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  const key = identityKey(idElement)
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    if (attempt > 0) await sleep(betweenAttemptsMS)
    let found = 0
    for await (const documents of readByIds(source, collection, [idOf(idElement)], source.latest)) {
      found += documents.filter((document) => identityKey(idElementOf(document)) === key).length
    }
    if (found < 2) return
  }
  throw new FatalError(
    'DuplicateDocumentId',
    `${namespace(entry.database, entry.name)} on the source holds several documents with _id ${describeId(idElement)}, ` +
      `on different shards, and the destination can store only one. Remove or change all but one of them on the source, then send resume. ${notLost.progress}`,
  )
}

/**
 * Finds `_id`s that exist on two shards of the source while a range of a collection is read. In `_id` order, the two
 * documents are adjacent.
 */
export class AdjacentIds {
  readonly #source: Cluster
  readonly #entry: CatalogEntry
  #last: IdentityKey | null = null

  private constructor(source: Cluster, entry: CatalogEntry) {
    this.#source = source
    this.#entry = entry
  }

  /** Null if the source cannot hold two documents with the same `_id`. */
  static of(source: Cluster, destination: Cluster, entry: CatalogEntry): AdjacentIds | null {
    return mayRepeatIds(source, destination, entry) ? new AdjacentIds(source, entry) : null
  }

  /**
   * Throws FatalError DuplicateDocumentId when two of the documents have the same `_id`. A document that is only being
   * moved between shards is ignored, because its event corrects the destination.
   * @param documents the next documents of the range
   */
  async check(documents: Buffer[]): Promise<void> {
    for (const document of documents) {
      const idElement = idElementOf(document)
      const key = identityKey(idElement)
      if (key === this.#last) await refuseDuplicate(this.#source, this.#entry, idElement)
      this.#last = key
    }
  }
}
