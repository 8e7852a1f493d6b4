import { type CommitParts, databasesOf, deferAgain } from '../commit/finish-commit.ts'
import { setWriteBlocking } from '../commit/write-blocking.ts'
import { type Identity, type IdentityKey, identityKey, unread } from '../documents/identity.ts'
import { type Identities, type ReconcileDependencies, reconcileDocuments } from '../documents/reconcile-documents.ts'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import { assert } from '../domain/errors.ts'
import { stopBalancer } from '../mongo/balancer.ts'
import type { Metadata, SyncRecord } from '../mongo/metadata.ts'
import { retry } from '../mongo/retry.ts'
import { eventsSince } from './events-since.ts'

export interface PrepareParts {
  commit: CommitParts
  metadata: Metadata
  record: SyncRecord
  /** The metadata that the former direction stored on the cluster that is now the source. */
  superseded: Metadata
  documents: Omit<ReconcileDependencies, 'context'>
}

/**
 * Prepares a former source as the destination: blocks writes, defers options, reconciles its definitions with the new
 * source, and reconciles every document that changed on it after it was last read. Repeatable.
 */
export async function prepareDestination({
  commit,
  metadata,
  record,
  superseded,
  documents,
}: PrepareParts): Promise<void> {
  const { destination, definitions, context, atStep } = commit
  atStep('reverseForget')
  // Repeated here, because an earlier release, which does not announce the move, may have begun the reversal.
  await superseded.announceMove(record)
  await superseded.clear()
  atStep('reverseHoldBack')
  await retry('blocking writes on the destination', context, () => setWriteBlocking(destination, true))
  await metadata.createIndexes()
  await retry('stopping the balancer', context, () => stopBalancer(destination, metadata))
  await deferAgain(commit)
  atStep('reverseDefinitions')
  for (const database of await databasesOf(commit)) {
    // New collections were created after writes were enabled, so all of their documents are in the stream.
    await definitions.reconcile(database, 'all', 'copied')
  }
  atStep('reverseReconcile')
  await reconcileOwnChanges(commit, metadata, documents)
  atStep('reverseEnd')
}

/**
 * Reconciles documents that changed on the former source after the commit. There should be none: user writes are
 * blocked, and 6.0 expires no documents meanwhile. However, someone may have lifted the block for a while, so that
 * documents expired. Their identities are in the former source's change stream; the new source's documents count.
 */
async function reconcileOwnChanges(
  { source, destination, catalogue, context }: CommitParts,
  metadata: Metadata,
  documents: Omit<ReconcileDependencies, 'context'>,
): Promise<void> {
  const former = await metadata.loadPosition('former')
  assert(former, 'a reversed sync has no position of its former direction')
  const byDestination = new Map(catalogue.entries().map((entry) => [entry.destinationUUID, entry]))
  for await (const events of eventsSince(destination, former, context)) {
    const changed = new Map<CatalogueEntry, Identities>()
    for (const { uuid, idElement } of events) {
      const entry = byDestination.get(uuid)
      if (!entry || !idElement) continue
      const identities = changed.get(entry) ?? new Map<IdentityKey, Identity>()
      changed.set(entry, identities)
      identities.set(identityKey(idElement), unread(idElement))
    }
    for (const [entry, identities] of changed) {
      await reconcileDocuments({ ...documents, context }, entry, identities, source.latest)
    }
  }
}
