import type { DeferredOptions, ExistingDefinitions } from '../definitions/deferred-options.ts'
import type { DestinationDefinitions } from '../definitions/destination-definitions.ts'
import { findDiffering } from '../definitions/differing-definitions.ts'
import { listDatabases } from '../definitions/listing.ts'
import type { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import type { DocumentWriter } from '../documents/write-identities.ts'
import type { Catalogue, CatalogueEntry } from '../domain/catalogue.ts'
import { isCapped } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
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
  deferredOptions: DeferredOptions
  writer: DocumentWriter
  context: RetryContext
  /** Where a reversed stream would begin; null in a sync that is not reversible. */
  reversePosition: ReversePosition | null
  /** Lets the destination's balancer do what it did before the sync. */
  restoreBalancer: () => Promise<void>
  /** Called at each named step, when it begins. */
  atStep: (step: string) => void
}

/** The databases whose definitions are to be looked at: those of the source that are synced, and those that it had. */
export async function databasesOf({ source, selection, catalogue, context }: CommitParts): Promise<Set<string>> {
  const databases = await retry('listing databases', context, async () =>
    selection.databases(await listDatabases(source)),
  )
  return new Set([...databases, ...catalogue.databases()])
}

/** Collections of which a step that asks several questions for each is done at a time. */
const atOnce = 8
/** Databases made equal at a time; each reads and changes several collections at a time. */
const databasesAtOnce = 4

/**
 * What follows once all events up to the commit point are applied: a last read of every definition, capped collections,
 * and prepareUnique. One pass over each cluster decides which collections a step has to touch. Every step may be
 * repeated.
 */
export async function prepareToWrite(parts: CommitParts): Promise<void> {
  const { source, destination, catalogue, deferredOptions } = parts
  parts.atStep('audit')
  const found = await reconcileDiffering(parts)
  const [refused] = parts.destinationDefinitions.refusedIndexes.values()
  if (refused) {
    throw new FatalError('IndexBuildFailed', `the destination cannot build ${refused}. Fix the cause and send resume.`)
  }
  const entries = catalogue.entries()
  const existing = found ?? (await deferredOptions.read(entries))
  parts.atStep('capped')
  const capped = entries.filter(({ wanted }) => isCapped(wanted.options))
  await each(parts, capped, (entry) =>
    restoreCappedOrder(source, destination, parts.writer, entry, parts.context.signal),
  )
  await deferredOptions.restoreCapped(capped, existing)
  await each(parts, withMissingIndexes(parts, entries, existing), (entry) =>
    parts.destinationDefinitions.buildConflicting(entry, 'unique'),
  )
  parts.atStep('prepareIndexes')
  await deferredOptions.prepareIndexes(entries, existing)
}

/**
 * Makes what differs equal. Returns what the destination has where nothing differed and so nothing was changed, else
 * null.
 */
async function reconcileDiffering(parts: CommitParts): Promise<ExistingDefinitions | null> {
  const { source, destination, selection, catalogue, definitions, destinationDefinitions, context } = parts
  const { databases, existing } = await retry('comparing definitions', context, () =>
    findDiffering({
      ...{ source, destination, selection, catalogue },
      isFollowed: (...definition) => destinationDefinitions.isFollowed(...definition),
      moved: (placements) => definitions.moved(placements),
    }),
  )
  if (databases.size === 0) return existing
  await inParallel(databasesAtOnce, [...databases], async ([database, touched]) => {
    await definitions.reconcile(database, touched, 'refused')
  })
  return null
}

function withMissingIndexes(
  { destinationDefinitions }: CommitParts,
  entries: CatalogueEntry[],
  existing: ExistingDefinitions,
): CatalogueEntry[] {
  return entries.filter(({ destinationUUID, wanted }) => {
    const indexes = existing.get(destinationUUID ?? '')?.indexes
    return indexes && destinationDefinitions.missingIndexes(indexes, wanted.indexes).length > 0
  })
}

async function each(
  { context }: CommitParts,
  entries: CatalogueEntry[],
  work: (entry: CatalogueEntry) => Promise<unknown>,
): Promise<void> {
  await inParallel(atOnce, entries, async (entry) => {
    await retry(`commit of ${namespace(entry.database, entry.name)}`, context, () => work(entry))
  })
}

/**
 * Documents may expire on the destination again: the last change there before the decision. Only collections with a TTL
 * index are touched. May be repeated.
 */
export async function restoreExpiry({ atStep, deferredOptions, catalogue }: CommitParts): Promise<void> {
  atStep('restoreExpiry')
  await deferredOptions.restoreExpiry(catalogue.entries())
}

/** Documents expire on the destination no more, for a verdict that follows restoreExpiry. May be repeated. */
export async function holdBackExpiry({ deferredOptions, catalogue }: CommitParts): Promise<void> {
  await deferredOptions.deferExpiry(catalogue.entries())
}

/**
 * A commit that failed or died before `canWrite` begins again from event application, because the source may have been
 * written meanwhile. Constraints it had put back would refuse documents on their way: they are deferred again.
 */
export async function deferAgain({ deferredOptions, catalogue }: CommitParts): Promise<void> {
  await deferredOptions.deferAll(catalogue.entries())
}

/** After `canWrite`: unique indexes become unique, hidden ones hidden. Every step may be repeated. */
export async function finishIndexes(parts: CommitParts): Promise<void> {
  const { deferredOptions, catalogue, destinationDefinitions } = parts
  parts.atStep('finishIndexes')
  const entries = catalogue.entries().filter(({ wanted }) => wanted.indexes.length > 0)
  const existing = await deferredOptions.read(entries)
  await deferredOptions.finishIndexes(entries, existing)
  await each(parts, withMissingIndexes(parts, entries, existing), async (entry) => {
    await destinationDefinitions.buildConflicting(entry, 'all')
    // The options of an index that was built just now.
    await deferredOptions.prepareIndexes([entry])
    await deferredOptions.restoreExpiry([entry])
    await deferredOptions.finishIndexes([entry])
  })
  parts.atStep('restoreBalancer')
  await retry('starting the balancer again', parts.context, parts.restoreBalancer)
}
