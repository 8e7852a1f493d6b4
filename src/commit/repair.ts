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
 * Makes the destination equal again where a verdict found it different, as the source has it now: definitions first,
 * because an index that is not the source's may refuse a document, then every document that is open. Collections of
 * others are left alone. May be repeated. Returns the number of documents looked at.
 */
export async function repairDifferences(parts: RepairParts): Promise<number> {
  const { source, destination, catalogue, definitions, destinationDefinitions, context } = parts
  parts.atStep('repair')
  for (const database of await databasesOf(parts)) {
    const standing = await retry(`listing ${database}`, context, () => listCollections(destination, database))
    for (const entry of catalogue.inDatabase(database)) {
      const one = standing.find(({ uuid }) => uuid === entry.destinationUUID)
      if (!one) {
        throw new RefusedError(
          'WrongState',
          `${namespace(database, entry.name)} was dropped on the destination by somebody else, so there is nothing to repair. Start over ` +
            'with an emptied destination.',
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
