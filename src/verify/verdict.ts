import { identityKey } from '../apply/identity.ts'
import type { Catalogue, CatalogueEntry } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { namespace } from '../domain/namespace.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { renderId, type StoredRecheck, type VerificationStore } from '../mongo/verification-store.ts'
import { comparedAtOnce, identified, type RecheckComparison } from './compare-rechecks.ts'
import { listedMax, type Verdict } from './difference.ts'
import { type BothClusters, type Explanation, explain, MovedError } from './recheck-documents.ts'
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

export async function explainAll({ clusters, context, catalogue }: VerdictParts, open: Open): Promise<Verdict> {
  const verdict: Verdict = { mismatches: [], total: open.total }
  for (const { uuid, idElement, onSource, onDestination } of open.first) {
    const entry = catalogue().get(uuid)
    const explained = entry && (await retry('verifying', context, () => explainOrMoved(clusters, entry, idElement)))
    if (entry && explained === 'moved') {
      verdict.mismatches.push({ namespace: namespace(entry.database, entry.name), kind: 'collection' })
      continue
    }
    if (!entry || !explained || explained === 'moved') {
      verdict.total -= 1 // equal after all
      continue
    }
    const { kind, field, idElement: asSpelled } = explained
    verdict.mismatches.push({
      namespace: namespace(entry.database, entry.name),
      kind,
      ...(field === undefined ? {} : { field }),
      id: renderId(asSpelled),
      // Changed on one cluster only: by somebody else there, or here and never applied.
      ...(onDestination && !onSource ? { by: 'foreignWrite' as const } : {}),
      ...(onSource && !onDestination ? { by: 'sync' as const } : {}),
    })
  }
  return verdict
}

/** A collection that is not where it was cannot be asked for its documents. */
async function explainOrMoved(
  clusters: BothClusters,
  entry: CatalogueEntry,
  idElement: Buffer,
): Promise<Explanation | 'moved' | null> {
  try {
    return await explain(clusters, entry, idElement)
  } catch (error) {
    if (error instanceof MovedError) return 'moved'
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
