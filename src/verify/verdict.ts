import { identityKey } from '../documents/identity.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { listedMax, type Mismatch, type Verdict } from '../domain/mismatch.ts'
import { namespace } from '../domain/namespace.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { MovedError } from '../mongo/collection-name.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { renderId, type StoredRecheck, type VerificationStore } from '../mongo/verification-store.ts'
import { byIdentityKey, comparisonsAtOnce, type RecheckComparison } from './compare-rechecks.ts'
import { comparedAtOnce, explain } from './recheck-documents.ts'
import type { Recheck, Rechecks } from './rechecks.ts'

export interface VerdictParts {
  clusters: BothClusters
  store: VerificationStore
  context: RetryContext
  catalog: () => Catalog
  rechecks: Rechecks
  comparison: RecheckComparison
  knownTime: () => ClusterTime
}

/** The number of documents that differ, and the rechecks of the first `listedMax` of them. */
export interface Open {
  total: number
  first: StoredRecheck[]
}

const maxTime: ClusterTime = (1n << 64n) - 1n

/**
 * Compares all open rechecks: first those in memory, then the stored ones, page by page. The next page is read while
 * the current one is compared. Only rechecks that are still different are written. Because users are waiting, at most
 * one command removes entries that were compared equal. The equal entries that remain are compared again later, which
 * is harmless.
 */
export async function compareEverything(parts: VerdictParts): Promise<Open> {
  const { store, rechecks, comparison } = parts
  await comparison.compare(rechecks.take(Number.POSITIVE_INFINITY, maxTime, Number.POSITIVE_INFINITY))
  await store.saveRechecks(rechecks.beginStoring('everything').map(toStored))
  rechecks.endStoring()
  const open: Open = { total: 0, first: [] }
  let page = await store.readRechecks(null, comparedAtOnce)
  for (let last = page.at(-1); last; last = page.at(-1)) {
    const [next, differing] = await Promise.all([store.readRechecks(last, comparedAtOnce), differingOf(parts, page)])
    open.total += differing.length
    open.first.push(...differing.slice(0, listedMax - open.first.length))
    page = next
  }
  await store.removeRechecks(rechecks.takeRemovable())
  return open
}

/** Returns the stored rechecks that are different now. */
async function differingOf(parts: VerdictParts, page: StoredRecheck[]): Promise<StoredRecheck[]> {
  const { rechecks, comparison, catalog } = parts
  const differing: StoredRecheck[] = []
  await inParallel(comparisonsAtOnce, [...groupBy(page)], async ([uuid, list]) => {
    const entry = catalog().get(uuid)
    const ids = list.map(({ idElement }) => idElement)
    const found = entry?.destinationUUID ? await comparison.findDifferent(entry, ids, parts.knownTime()) : []
    const byIdentity = byIdentityKey(found ?? ids)
    for (const recheck of list) {
      if (byIdentity.delete(identityKey(recheck.idElement))) differing.push(recheck)
      else rechecks.equalInStore(recheck)
    }
    for (const idElement of byIdentity.values()) {
      differing.push({ uuid, idElement, onSource: false, onDestination: false, token: null })
    }
  })
  return differing
}

/** Explains the first differences. Documents that have become equal in the meantime are not counted. */
export async function explainAll({ clusters, context, catalog }: VerdictParts, open: Open): Promise<Verdict> {
  const verdict: Verdict = { mismatches: [], total: open.total }
  for (const recheck of open.first) {
    const entry = catalog().get(recheck.uuid)
    const mismatch = entry && (await retry('verifying', context, () => mismatchOf(clusters, entry, recheck)))
    if (mismatch) verdict.mismatches.push(mismatch)
    else verdict.total -= 1
  }
  return verdict
}

async function mismatchOf(
  clusters: BothClusters,
  entry: CatalogEntry,
  { idElement, onSource, onDestination }: StoredRecheck,
): Promise<Mismatch | null> {
  const where = namespace(entry.database, entry.name)
  try {
    const explained = await explain(clusters, entry, idElement)
    if (!explained) return null
    const { kind, field, idElement: shownElement } = explained
    return {
      namespace: where,
      kind,
      ...(field === undefined ? {} : { field }),
      id: renderId(shownElement),
      // If the document changed on one cluster only, the cause is a foreign write, or a source change that was not
      // applied.
      ...(onDestination && !onSource ? { by: 'foreignWrite' as const } : {}),
      ...(onSource && !onDestination ? { by: 'sync' as const } : {}),
    }
  } catch (error) {
    // The collection was renamed or dropped, so its documents cannot be read.
    if (error instanceof MovedError) return { namespace: where, kind: 'collection' }
    throw error
  }
}

export function toStored({ uuid, idElement, newestBatch, token }: Recheck): StoredRecheck {
  return { uuid, idElement, onSource: newestBatch.source > 0, onDestination: newestBatch.destination > 0, token }
}

function groupBy(rechecks: StoredRecheck[]): Map<string, StoredRecheck[]> {
  const groups = new Map<string, StoredRecheck[]>()
  for (const recheck of rechecks) {
    const group = groups.get(recheck.uuid)
    if (group) group.push(recheck)
    else groups.set(recheck.uuid, [recheck])
  }
  return groups
}
