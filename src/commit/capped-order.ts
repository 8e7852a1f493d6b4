import { idElementOf } from '../documents/identity.ts'
import { openNatural } from '../documents/read-documents.ts'
import { type DocumentWriter, targetOf } from '../documents/write-identities.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { isCapped } from '../domain/definition.ts'
import { errorText } from '../domain/error-text.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { CollectionToRead } from '../mongo/collection-name.ts'
import { code, codeOf } from '../mongo/errors.ts'
import type { RawCursor } from '../mongo/raw-cursor.ts'

/**
 * Restores the document order of a capped collection, which is part of its content. A replay after a crash, or a
 * document that is deleted and inserted again during the copy, may leave documents out of order. Called during a
 * commit, while nothing writes to the source. Reads both collections in natural order, and rewrites the destination
 * from the first `_id` that differs. Returns the number of rewritten documents. It can be repeated, even after a stop.
 * Throws StoppedError when `stopped` is aborted, which it checks between commands. Throws FatalError UnsupportedChange
 * when writes on the source removed a document at which a cursor was positioned.
 */
export async function restoreCappedOrder(
  source: Cluster,
  destination: Cluster,
  writer: DocumentWriter,
  entry: CatalogEntry,
  stopped: AbortSignal,
): Promise<number> {
  if (!isCapped(entry.wanted.options)) return 0
  const from = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  const throwIfStopped = (): void => {
    if (stopped.aborted) throw new StoppedError()
  }
  const readers: Reader[] = []
  const open = async (cluster: Cluster, collection: CollectionToRead): Promise<Reader> => {
    const reader = new Reader(await openNatural(cluster, collection, cluster.latest, batchSize), stopped)
    readers.push(reader)
    return reader
  }
  try {
    const wanted = await open(source, from)
    const existing = await open(destination, targetOf(entry))
    let want = await wanted.next()
    let have = await existing.next()
    while (want && have && Buffer.compare(idElementOf(want), idElementOf(have)) === 0) {
      want = await wanted.next()
      have = await existing.next()
    }
    if (!want && !have) return 0
    const misplaced: Buffer[] = []
    for (; have; have = await existing.next()) misplaced.push(Buffer.from(idElementOf(have)))
    for (let at = 0; at < misplaced.length; at += batchSize) {
      throwIfStopped()
      await writer.delete(entry, misplaced.slice(at, at + batchSize))
    }
    let rewritten = 0
    let batch: Buffer[] = []
    let bytes = 0
    for (; want; want = await wanted.next()) {
      batch.push(want)
      bytes += want.length
      rewritten += 1
      if (batch.length < batchSize && bytes < batchBytes) continue
      throwIfStopped()
      await writer.insert(entry, batch)
      batch = []
      bytes = 0
    }
    throwIfStopped()
    await writer.insert(entry, batch)
    return rewritten
  } catch (error) {
    if (codeOf(error) !== code.cappedPositionLost) throw error
    throw new FatalError(
      'UnsupportedChange',
      `${namespace(entry.database, entry.name)} was written to on the source while the commit corrected its order on ` +
        `the destination (${errorText(error)}). Stop all writes on the source, then send resume. ${notLost.progress}`,
      { cause: error },
    )
  } finally {
    for (const reader of readers) await reader.close()
  }
}

const batchSize = 500
const batchBytes = 4 * 1024 * 1024

class Reader {
  readonly #cursor: RawCursor
  readonly #stopped: AbortSignal
  #documents: Buffer[] = []
  #at = 0
  constructor(cursor: RawCursor, stopped: AbortSignal) {
    this.#cursor = cursor
    this.#stopped = stopped
  }

  async next(): Promise<Buffer | null> {
    while (this.#at >= this.#documents.length) {
      if (this.#stopped.aborted) throw new StoppedError()
      const batch = await this.#cursor.next({ batchSize })
      if (!batch) return null
      this.#documents = batch.documents
      this.#at = 0
    }
    return this.#documents[this.#at++] as Buffer
  }

  async close(): Promise<void> {
    await this.#cursor.close()
  }
}
