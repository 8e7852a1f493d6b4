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
  /** What the former direction stored on the cluster that is the source now. */
  superseded: Metadata
  documents: Omit<ReconcileDependencies, 'context'>
}

/**
 * Makes a former source fit to be the destination: blocked, its traits held back, its definitions those of the new
 * source, and every document that changed on it since it was last read made equal again. Repeatable.
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
  // An earlier release, which may have begun the reversal, has not.
  await superseded.announceMove(record)
  await superseded.clear()
  atStep('reverseHoldBack')
  await retry('blocking writes on the destination', context, () => setWriteBlocking(destination, true))
  await metadata.createIndexes()
  await retry('stopping the balancer', context, () => stopBalancer(destination, metadata))
  await deferAgain(commit)
  atStep('reverseDefinitions')
  for (const database of await databasesOf(commit)) {
    // What is new there was created after writes were allowed, so all of its documents are in the stream.
    await definitions.reconcile(database, 'all', 'copied')
  }
  atStep('reverseReconcile')
  await reconcileOwnChanges(commit, metadata, documents)
  atStep('reverseEnd')
}

/**
 * A former source should not have changed since its commit: users are blocked, and 6.0 expires nothing while they are.
 * But somebody may have lifted the block for a while, and documents have expired then. The identities are in its own
 * change stream; what counts is what the new source has for them.
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
