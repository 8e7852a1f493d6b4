import { listCollections } from '../definitions/listing.ts'
import { identityKey, unread } from '../documents/identity.ts'
import { type Identities, type ReconcileDependencies, reconcileDocuments } from '../documents/reconcile-documents.ts'
import { RefusedError, UnfollowedError } from '../domain/errors.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import { namespace } from '../domain/namespace.ts'
import { retry } from '../mongo/retry.ts'
import type { StoredRecheck, VerificationStore } from '../mongo/verification-store.ts'
import { type CommitParts, databasesOf } from './finish-commit.ts'

export interface RepairParts extends CommitParts {
  store: VerificationStore
  documents: ReconcileDependencies
}

/** Rechecks read in one page. */
const atOnce = 500
function refuseUnfollowed(error: unknown): never {
  if (!(error instanceof UnfollowedError)) throw error
  throw new RefusedError(
    'WrongState',
    `${error.message}. Send resume, which copies these collections again, then commit.`,
    {
      cause: error,
    },
  )
}

/** Maximum number of namespaces in a message. */
const namedMax = 5

/**
 * Makes the destination equal to the current source where a verdict found differences. It reconciles definitions first,
 * because an index that the source does not have may reject a document. It then reconciles every document with an open
 * recheck. It does not change collections that another client created on the destination. Repeatable. Returns the
 * number of reconciled documents. Throws RefusedError WrongState when a repair cannot remove the differences.
 */
export async function repairDifferences(parts: RepairParts): Promise<number> {
  const { source, destination, catalogue, definitions, destinationDefinitions, context } = parts
  parts.atStep('repair')
  for (const database of await databasesOf(parts)) {
    const existing = await retry(`listing ${database}`, context, () => listCollections(destination, database))
    for (const entry of catalogue.inDatabase(database)) {
      const one = existing.find(({ uuid }) => uuid === entry.destinationUUID)
      if (!one) {
        throw new RefusedError(
          'WrongState',
          `${namespace(database, entry.name)} was dropped on the destination by somebody else, so repair cannot restore it. Start over ` +
            'with "existingData": "converge", which copies it again. No data is lost, because the source has all of it.',
        )
      }
      const what = `repairing ${database}.${entry.name}`
      await retry(what, context, () => destinationDefinitions.followOptions(entry, entry.wanted.options, one.options))
    }
    await definitions.reconcile(database, 'all', 'copied').catch(refuseUnfollowed)
  }
  let repaired = 0
  let after: StoredRecheck | null = null
  for (;;) {
    const page: StoredRecheck[] = await parts.store.readRechecks(after, atOnce)
    const last = page.at(-1)
    if (!last) break
    after = last
    const byCollection = new Map<string, Identities>()
    for (const { uuid, idElement } of page) {
      const identities = byCollection.get(uuid) ?? new Map()
      identities.set(identityKey(idElement), unread(idElement))
      byCollection.set(uuid, identities)
    }
    for (const [uuid, identities] of byCollection) {
      const entry = catalogue.get(uuid)
      if (!entry) continue
      await reconcileDocuments(parts.documents, entry, identities, source.latest)
      repaired += identities.size
    }
  }
  if (repaired === 0) await refuseForeignOnly(parts.store)
  return repaired
}

/**
 * Throws RefusedError WrongState when the verdict named only collections that another client created on the
 * destination. A repair does not change them, so the next verdict would be the same.
 */
async function refuseForeignOnly(store: VerificationStore): Promise<void> {
  const { mismatches, total } = await store.loadVerdict()
  const differences = mismatches as Mismatch[]
  const isForeign = ({ kind, by }: Mismatch): boolean => kind === 'collection' && by === 'foreignWrite'
  if (total === 0 || total > differences.length || !differences.every(isForeign)) return
  const named = differences.slice(0, namedMax).map((one) => one.namespace)
  const more = total > named.length ? ` and ${total - named.length} more` : ''
  throw new RefusedError(
    'WrongState',
    `nothing was repaired: somebody else created ${named.join(', ')}${more} on the destination, and tandem does not touch what it did not create. ` +
      'Drop them there, then send resume. No data on the source was changed.',
  )
}
