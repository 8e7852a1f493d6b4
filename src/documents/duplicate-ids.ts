import { setTimeout as sleep } from 'node:timers/promises'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { describeId } from '../mongo/verification-store.ts'
import { idElementOf, identityKey, idOf } from './identity.ts'
import { readByIds } from './read-documents.ts'

/** A document that moves because its shard key changed may show on both shards to a read that crosses its transaction. */
const looks = 4
const betweenLooksMS = 250

/**
 * Throws FatalError DuplicateDocumentId when the source holds two documents under this `_id` at each of several looks: shards see
 * to the uniqueness of `_id` each for itself, so a collection distributed by something else may have it twice.
 */
export async function refuseDuplicate(source: Cluster, entry: CatalogueEntry, idElement: Buffer): Promise<void> {
  const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  const key = identityKey(idElement)
  for (let look = 0; look < looks; look++) {
    if (look > 0) await sleep(betweenLooksMS)
    let found = 0
    for await (const documents of readByIds(source, collection, [idOf(idElement)], source.latest)) {
      found += documents.filter((document) => identityKey(idElementOf(document)) === key).length
    }
    if (found < 2) return
  }
  throw new FatalError(
    'DuplicateDocumentId',
    `${namespace(entry.database, entry.name)} on the source holds several documents with _id ${describeId(idElement)}, ` +
      'on different shards; _id must be unique in the collection. Remove or change all but one of them, then send resume.',
  )
}
