import { identityKey } from '../apply/identity.ts'
import type { Catalogue, CatalogueEntry } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { namespace } from '../domain/namespace.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { renderId, type StoredRecheck, type VerificationStore } from '../mongo/verification-store.ts'
import { comparedAtOnce, identified, type RecheckComparison } from './compare-rechecks.ts'
import { listedMax, type Mismatch, type Verdict } from './difference.ts'
import { type BothClusters, explain, MovedError } from './recheck-documents.ts'
import type { Recheck, Rechecks } from './rechecks.ts'

export interface VerdictParts {
  clusters: BothClusters
  store: VerificationStore
  context: RetryContext
  catalogue: () => Catalogue
  rechecks: Rechecks
  comparison: RecheckComparison
  knownTime: () => ClusterTime
}

/** What differs: how many, and the first of them. */
export interface Open {
  total: number
  first: StoredRecheck[]
}

const maxTime: ClusterTime = (1n << 64n) - 1n

/** Everything open: what is in memory first, then (a page at a time, for there may be many) what is stored. */
export async function compareEverything(parts: VerdictParts): Promise<Open> {
  const { store, rechecks, comparison, catalogue } = parts
  const everything = rechecks.take(Number.POSITIVE_INFINITY, maxTime, Number.POSITIVE_INFINITY)
  await comparison.compare(everything)
  const left = rechecks.waiting
  await store.saveRechecks(left.map(toStored))
  for (const recheck of left) recheck.stored = true
  const open: Open = { total: 0, first: [] }
  let after: StoredRecheck | null = null
  for (;;) {
    const page: StoredRecheck[] = await store.readRechecks(after, comparedAtOnce)
    const last = page.at(-1)
    if (!last) return open
    after = last
    const settled: StoredRecheck[] = []
    for (const [uuid, list] of groupBy(page)) {
      const entry = catalogue().get(uuid)
      const ids = list.map(({ idElement }) => idElement)
      const found = entry?.destinationUUID ? await comparison.findDifferent(entry, ids, parts.knownTime()) : []
      const byIdentity = identified(found ?? ids)
      const [differing, equal] = [[] as StoredRecheck[], [] as StoredRecheck[]]
      for (const recheck of list) {
        if (byIdentity.delete(identityKey(recheck.idElement))) differing.push(recheck)
        else equal.push(recheck)
      }
      for (const idElement of byIdentity.values()) {
        differing.push({ uuid, idElement, onSource: false, onDestination: false })
      }
      open.total += differing.length
      open.first.push(...differing.slice(0, listedMax - open.first.length))
      settled.push(...equal)
    }
    await store.removeRechecks(settled)
    rechecks.removedFromStore(settled)
  }
}

/** Names what is open; what has become equal meanwhile counts no more. */
export async function explainAll({ clusters, context, catalogue }: VerdictParts, open: Open): Promise<Verdict> {
  const verdict: Verdict = { mismatches: [], total: open.total }
  for (const recheck of open.first) {
    const entry = catalogue().get(recheck.uuid)
    const mismatch = entry && (await retry('verifying', context, () => mismatchOf(clusters, entry, recheck)))
    if (mismatch) verdict.mismatches.push(mismatch)
    else verdict.total -= 1
  }
  return verdict
}

async function mismatchOf(
  clusters: BothClusters,
  entry: CatalogueEntry,
  { idElement, onSource, onDestination }: StoredRecheck,
): Promise<Mismatch | null> {
  const where = namespace(entry.database, entry.name)
  try {
    const explained = await explain(clusters, entry, idElement)
    if (!explained) return null
    const { kind, field, idElement: asSpelled } = explained
    return {
      namespace: where,
      kind,
      ...(field === undefined ? {} : { field }),
      id: renderId(asSpelled),
      // Changed on one cluster only: by somebody else there, or here and never applied.
      ...(onDestination && !onSource ? { by: 'foreignWrite' as const } : {}),
      ...(onSource && !onDestination ? { by: 'sync' as const } : {}),
    }
  } catch (error) {
    // It is not where it was, so it cannot be asked for its documents.
    if (error instanceof MovedError) return { namespace: where, kind: 'collection' }
    throw error
  }
}

export function toStored({ uuid, idElement, firstBatch }: Recheck): StoredRecheck {
  return { uuid, idElement, onSource: firstBatch.source > 0, onDestination: firstBatch.destination > 0 }
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
