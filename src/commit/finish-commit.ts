import type { DefinitionReconciler } from '../apply/reconcile-definitions.ts'
import type { DocumentWriter } from '../apply/write-identities.ts'
import type { Catalogue } from '../domain/catalogue.ts'
import { FatalError } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { DestinationDefinitions } from '../mongo/destination-definitions.ts'
import type { DestinationTraits } from '../mongo/destination-traits.ts'
import { listDatabases } from '../mongo/listing.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { restoreCappedOrder } from './capped-order.ts'
import type { ReversePosition } from './reverse-position.ts'

export interface CommitParts {
  source: Cluster
  destination: Cluster
  selection: Selection
  catalogue: Catalogue
  definitions: DefinitionReconciler
  destinationDefinitions: DestinationDefinitions
  traits: DestinationTraits
  writer: DocumentWriter
  context: RetryContext
  /** Where a reversed stream would begin; null in a sync that is not reversible. */
  reversePosition: ReversePosition | null
  /** Lets the destination's balancer do what it did before the sync. */
  restoreBalancer: () => Promise<void>
  /** For fault tests: called at each named step. */
  atStep: (step: string) => void
}

/** The databases whose definitions are to be looked at: those of the source that are synced, and those that it had. */
export async function databasesOf({ source, selection, catalogue, context }: CommitParts): Promise<Set<string>> {
  const databases = await retry('listing databases', context, async () =>
    selection.databases(await listDatabases(source)),
  )
  return new Set([...databases, ...catalogue.databases()])
}

/**
 * What follows once all events up to the commit point are applied: a last look at every definition, the held-back
 * traits, prepareUnique. Every step may be repeated.
 */
export async function prepareToWrite(parts: CommitParts): Promise<void> {
  const { source, destination, catalogue, definitions, context } = parts
  parts.atStep('audit')
  for (const database of await databasesOf(parts)) {
    await definitions.reconcile(database, 'all', 'refused')
  }
  const [refused] = parts.destinationDefinitions.refusedIndexes.values()
  if (refused) {
    throw new FatalError('IndexBuildFailed', `the destination cannot build ${refused}. Mend the cause and send resume.`)
  }
  parts.atStep('capped')
  for (const entry of catalogue.entries()) {
    const what = `commit of ${entry.database}.${entry.name}`
    await retry(what, context, () => restoreCappedOrder(source, destination, parts.writer, entry))
    await retry(what, context, () => parts.traits.restoreCapped(entry))
    await retry(what, context, () => parts.destinationDefinitions.buildTwins(entry, 'unique'))
  }
  parts.atStep('prepareIndexes')
  for (const entry of catalogue.entries()) {
    await retry(`commit of ${entry.database}.${entry.name}`, context, () => parts.traits.prepareIndexes(entry))
  }
}

/** Documents may expire on the destination again. The last change there before the decision. May be repeated. */
export async function restoreExpiry(parts: CommitParts): Promise<void> {
  parts.atStep('restoreExpiry')
  for (const entry of parts.catalogue.entries()) {
    const what = `commit of ${entry.database}.${entry.name}`
    await retry(what, parts.context, () => parts.traits.restoreExpiry(entry))
  }
}

/**
 * A commit that failed or died before `canWrite` begins anew from event application, because the source may have been
 * written meanwhile. Constraints it had put back would refuse documents on their way: they are held back again.
 */
export async function holdBackAgain(parts: CommitParts): Promise<void> {
  for (const entry of parts.catalogue.entries()) {
    await retry(`holding back ${entry.database}.${entry.name}`, parts.context, () => parts.traits.holdBack(entry))
  }
}

/** After `canWrite`: unique indexes become unique, hidden ones hidden. Every step may be repeated. */
export async function finishIndexes(parts: CommitParts): Promise<void> {
  parts.atStep('finishIndexes')
  for (const entry of parts.catalogue.entries()) {
    const what = `commit of ${entry.database}.${entry.name}`
    await retry(what, parts.context, () => parts.traits.finishIndexes(entry))
    await retry(what, parts.context, () => parts.destinationDefinitions.buildTwins(entry, 'all'))
    // Traits of a twin that was built just now.
    await retry(what, parts.context, () => parts.traits.prepareIndexes(entry))
    await retry(what, parts.context, () => parts.traits.restoreExpiry(entry))
    await retry(what, parts.context, () => parts.traits.finishIndexes(entry))
  }
  parts.atStep('restoreBalancer')
  await retry('starting the balancer again', parts.context, parts.restoreBalancer)
}
