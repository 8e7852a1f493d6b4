import { listCollections } from '../definitions/listing.ts'
import { identityKey, unread } from '../documents/identity.ts'
import { type Identities, type ReconcileDependencies, reconcileDocuments } from '../documents/reconcile-documents.ts'
import { RefusedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { retry } from '../mongo/retry.ts'
import type { StoredRecheck, VerificationStore } from '../mongo/verification-store.ts'
import { type CommitParts, databasesOf } from './finish-commit.ts'

export interface RepairParts extends CommitParts {
  store: VerificationStore
  documents: ReconcileDependencies
}

const atOnce = 500

/**
 * Makes the destination equal to the current source where a verdict found differences. Definitions come first, because
 * an index that the source does not have may refuse a document; then every document with an open recheck follows.
 * Foreign collections are not changed. Repeatable. Returns the number of reconciled documents. Throws RefusedError
 * WrongState when a collection was dropped on the destination.
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
            'with an emptied destination. Nothing was changed.',
        )
      }
      const what = `repairing ${database}.${entry.name}`
      await retry(what, context, () => destinationDefinitions.followOptions(entry, entry.wanted.options, one.options))
    }
    await definitions.reconcile(database, 'all', 'copied')
  }
  let repaired = 0
  let after: StoredRecheck | null = null
  for (;;) {
    const page: StoredRecheck[] = await parts.store.readRechecks(after, atOnce)
    const last = page.at(-1)
    if (!last) return repaired
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
}
