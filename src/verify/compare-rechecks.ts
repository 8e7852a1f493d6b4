import { identityKey } from '../documents/identity.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { MovedError } from '../mongo/collection-name.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { comparedAtOnce, findDifferent } from './recheck-documents.ts'
import type { Recheck, Rechecks } from './rechecks.ts'

export interface ComparisonParts {
  clusters: BothClusters
  context: RetryContext
  catalog: () => Catalog
  rechecks: Rechecks
  /** The time up to which the source's changes have been read. */
  knownTime: () => ClusterTime
}

export const comparisonsAtOnce = 2

/** Compares the documents of rechecks on both clusters, and resolves the rechecks of those that are equal. */
export class RecheckComparison {
  readonly #parts: ComparisonParts
  constructor(parts: ComparisonParts) {
    this.#parts = parts
  }

  /** Compares these rechecks. Equal ones are resolved, and the others wait again. */
  async compare(taken: Recheck[]): Promise<void> {
    const byCollection = new Map<string, Recheck[]>()
    for (const recheck of taken) {
      const list = byCollection.get(recheck.uuid)
      if (list) list.push(recheck)
      else byCollection.set(recheck.uuid, [recheck])
    }
    const parts: [CatalogEntry, Recheck[]][] = []
    for (const [uuid, list] of byCollection) {
      const entry = this.#parts.catalog().get(uuid)
      if (!entry?.destinationUUID) {
        this.#parts.rechecks.equal(list) // the collection was dropped, or the destination does not have it yet
        continue
      }
      for (let from = 0; from < list.length; from += comparedAtOnce)
        parts.push([entry, list.slice(from, from + comparedAtOnce)])
    }
    const open = new Set(parts.map(([, list]) => list))
    try {
      await inParallel(comparisonsAtOnce, parts, async ([entry, list]) => {
        await this.#comparePart(entry, list)
        open.delete(list)
      })
    } finally {
      for (const list of open) this.#parts.rechecks.different(list, performance.now())
    }
  }

  async #comparePart(entry: CatalogEntry, list: Recheck[]): Promise<void> {
    // The stream may lack changes from before the collection was last converged.
    const known = laterOf(this.#parts.knownTime(), entry.convergedFrom ?? 0n)
    const notBefore = list.reduce((latest, { changedAt }) => laterOf(latest, changedAt), known)
    const found = await this.findDifferent(
      entry,
      list.map(({ idElement }) => idElement),
      notBefore,
      new Map(
        list.flatMap(({ idElement, documentKey }) => (documentKey ? [[identityKey(idElement), documentKey]] : [])),
      ),
    )
    if (found === null) {
      this.#parts.rechecks.different(list, performance.now())
      return
    }
    const now = performance.now()
    const byIdentity = byIdentityKey(found)
    const unequal: Recheck[] = []
    const equal: Recheck[] = []
    for (const recheck of list) {
      if (byIdentity.delete(identityKey(recheck.idElement))) unequal.push(recheck)
      else equal.push(recheck)
    }
    // Under a collation, the read may also return documents whose `_id` is a different string that compares equal. If
    // they differ, they get rechecks of their own.
    for (const idElement of byIdentity.values()) this.#parts.rechecks.foundDifferent(entry.uuid, idElement)
    this.#parts.rechecks.different(unequal, now)
    this.#parts.rechecks.equal(equal)
  }

  /**
   * Returns the `_id` elements of the documents that differ now, or null if the collection was renamed or dropped.
   * @param documentKeys the known document keys, by identity key
   */
  async findDifferent(
    entry: CatalogEntry,
    idElements: Buffer[],
    notBefore: ClusterTime,
    documentKeys?: ReadonlyMap<string, Buffer>,
  ): Promise<Buffer[] | null> {
    return await retry(`verifying ${namespace(entry.database, entry.name)}`, this.#parts.context, async () => {
      try {
        return await findDifferent(this.#parts.clusters, entry, idElements, notBefore, documentKeys)
      } catch (error) {
        if (error instanceof MovedError) return null
        throw error
      }
    })
  }
}

/** Maps `_id` elements by identity key, which is equal for all encodings of an `_id`, such as 1 and NumberLong(1). */
export function byIdentityKey(idElements: readonly Buffer[]): Map<string, Buffer> {
  return new Map(idElements.map((idElement) => [identityKey(idElement), idElement]))
}
