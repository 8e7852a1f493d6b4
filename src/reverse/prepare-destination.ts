import { type CommitParts, databasesOf, deferAgain } from '../commit/finish-commit.ts'
import { setWriteBlocking } from '../commit/write-blocking.ts'
import { type Identity, type IdentityKey, identityKey, unread } from '../documents/identity.ts'
import { type Identities, reconcileDocuments } from '../documents/reconcile-documents.ts'
import type { ReconcileDependencies } from '../documents/reconcile-steps.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { assert, FatalError, UnfollowedError } from '../domain/errors.ts'
import { stopBalancer } from '../mongo/balancer.ts'
import type { Metadata, SyncRecord } from '../mongo/metadata.ts'
import { reachesStoredPositions } from '../mongo/reaches-back.ts'
import { retry } from '../mongo/retry.ts'
import { eventsSince } from './events-since.ts'
import { beginsUnknown } from './move-metadata.ts'
import { mayHaveMoved } from './moved-databases.ts'

export interface PrepareParts {
  commit: CommitParts
  metadata: Metadata
  record: SyncRecord
  /** The metadata that the former direction stored on the cluster that is now the source. */
  superseded: Metadata
  documents: Omit<ReconcileDependencies, 'context'>
}

/**
 * Prepares the former source as the destination: blocks writes, defers options, reconciles its definitions with the new
 * source, and reconciles every document that changed there after the commit. It can be repeated.
 *
 * If an oplog no longer contains the changes, or the commit did not store its position, this function reconciles
 * nothing and returns true. The convergence of all collections then reconciles the definitions and compares every
 * document.
 * @returns true if all collections must be converged
 */
export async function prepareDestination({
  commit,
  metadata,
  record,
  superseded,
  documents,
}: PrepareParts): Promise<boolean> {
  const { source, destination, definitions, context, atStep } = commit
  atStep('reverseClearFormer')
  // The reversal announced the move before it moved the state. The announcement is repeated here, because an earlier
  // release, which does not announce a move, may have begun the reversal.
  await superseded.announceMove(record)
  await superseded.clear()
  atStep('reverseDeferOptions')
  await retry('blocking writes on the destination', context, () => setWriteBlocking(destination, true))
  await metadata.createIndexes()
  await retry('stopping the balancer', context, () => stopBalancer(destination, metadata, context))
  await deferAgain(commit)
  if (await beginsUnknown(metadata)) return true
  if (!(await reachesStoredPositions(source, metadata, context))) return true
  if (await mayHaveMoved(commit)) return true
  atStep('reverseDefinitions')
  try {
    for (const database of await databasesOf(commit)) {
      // 'copied': collections that are new here were created on the new source after user writes were enabled there, so
      // the change stream contains all of their documents.
      await definitions.reconcile(database, 'all', 'copied')
    }
    atStep('reverseReconcile')
    await reconcileOwnChanges(commit, metadata, documents)
  } catch (error) {
    // The server has cloned collections of the new source.
    if (error instanceof UnfollowedError) return true
    // `checkReverse` has read this oplog and found no change that exists only there. The oplog has rolled over since.
    if (error instanceof FatalError && error.failure === 'OplogWindowLost') return true
    throw error
  }
  atStep('reverseEnd')
  return false
}

/**
 * Reconciles documents that changed on the former source after the commit. There should be none, because user writes
 * are blocked, and servers from 6.0 on expire no documents while the block is on. However, an operator may have lifted
 * the block for a while, so that documents expired. The former source's change stream contains their identities, and
 * the documents are read from the new source.
 */
async function reconcileOwnChanges(
  { source, destination, catalog, context }: CommitParts,
  metadata: Metadata,
  documents: Omit<ReconcileDependencies, 'context'>,
): Promise<void> {
  const former = await metadata.loadPosition('former')
  assert(former, 'a reversed sync has no position of its former direction')
  const byDestination = new Map(catalog.entries().map((entry) => [entry.destinationUUID, entry]))
  for await (const events of eventsSince(destination, former, context)) {
    const changed = new Map<CatalogEntry, Identities>()
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
