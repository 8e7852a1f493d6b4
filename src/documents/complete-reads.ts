import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { type Identity, type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { type ReconcileDependencies, readCurrent } from './reconcile-steps.ts'

export type DocumentsById = Map<IdentityKey, Buffer[]>

/** The largest number of `_id`s in a part. */
const partMax = 1_000
/** A part with more bytes is divided, except if it has only one `_id`. Limits the memory of one lane. */
const partBytesMax = 16 * 1024 * 1024

/**
 * Reads the source's documents with the `_id`s of these identities in parts, and passes each part to `take` when all of
 * its documents have been read. Several documents may have one `_id`. Ends when the source no longer has the collection;
 * a drop event then follows.
 */
export async function readComplete(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  identities: readonly Identity[],
  notBefore: ClusterTime,
  take: (part: readonly Identity[], documents: DocumentsById) => Promise<void>,
): Promise<void> {
  let size = partMax
  for (let from = 0; from < identities.length; ) {
    const part = identities.slice(from, from + size)
    const documents = await readPart(dependencies, entry, part, notBefore)
    if (documents === 'gone') return
    if (documents === 'too large') {
      size = Math.ceil(part.length / 2)
      continue
    }
    await take(part, documents)
    from += part.length
  }
}

async function readPart(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  part: readonly Identity[],
  notBefore: ClusterTime,
): Promise<DocumentsById | 'gone' | 'too large'> {
  const found: DocumentsById = new Map()
  let bytes = 0
  const add = async (documents: Buffer[]): Promise<void> => {
    for (const document of documents) {
      const id = identityKey(idElementOf(document))
      const known = found.get(id) ?? []
      // A read that was interrupted by a rename begins again.
      if (known.some((one) => one.equals(document))) continue
      found.set(id, [...known, document])
      bytes += document.length
    }
    if (bytes > partBytesMax && part.length > 1) throw new PartTooLarge()
  }
  const ids = part.map(({ idElement }) => idOf(idElement))
  try {
    return (await readCurrent(dependencies, entry, { ids }, notBefore, add)) ? 'gone' : found
  } catch (error) {
    if (error instanceof PartTooLarge) return 'too large'
    throw error
  }
}

class PartTooLarge extends Error {}
