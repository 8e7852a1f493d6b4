import { listCollections } from '../definitions/listing.ts'
import { findMissing } from '../definitions/missing-collections.ts'
import { identityKey, unread } from '../documents/identity.ts'
import { type Identities, reconcileDocuments } from '../documents/reconcile-documents.ts'
import type { ReconcileDependencies } from '../documents/reconcile-steps.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { RefusedError, UnfollowedError } from '../domain/errors.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { retry } from '../mongo/retry.ts'
import type { StoredRecheck, VerificationStore } from '../mongo/verification-store.ts'
import { type CommitParts, databasesOf } from './finish-commit.ts'

export interface RepairParts extends CommitParts {
  store: VerificationStore
  documents: ReconcileDependencies
  /** Resolves with true if one of these documents differs now. */
  differs: (entry: CatalogEntry, idElements: readonly Buffer[]) => Promise<boolean>
}

/** Maximum number of rechecks in one page. */
const pageSize = 500
/** The same, when only the collections that differ are searched for. */
const searchedPageSize = 10_000
/** Maximum number of namespaces in a message. */
const namedMax = 5

/**
 * Up to this number of differences, each document is repaired individually, by its `_id`. With more, the whole
 * collections are converged: a convergence reads and compares ranges of documents, which is faster, continues after a
 * crash, and is shared by all instances.
 */
export const repairedMax = 1_000_000

export interface Repaired {
  /** Number of documents that were reconciled. */
  documents: number
  /** The namespaces of the collections that must be converged, because they were not repaired, by source UUID. */
  unrepaired: Map<string, string>
}

/**
 * Removes the differences that a verdict found. It first reconciles the definitions of all databases, because an index
 * that the source does not have may reject a document. It then reconciles every document with an open recheck. It does
 * not change collections that another client created on the destination. It can be repeated. Throws RefusedError
 * WrongState when a repair cannot remove the differences.
 *
 * Two kinds of collections are returned, and their documents are not repaired: those that another client dropped on the
 * destination, and, when there are more than `differencesMax` differences, all in which a document differs.
 */
export async function repairDifferences(parts: RepairParts, differencesMax: number): Promise<Repaired> {
  const { source, destination, catalog, context, store } = parts
  parts.atStep('repair')
  const missing = await retry('looking for dropped collections', context, () =>
    findMissing({ source, destination }, catalog.entries()),
  )
  await refuseReplaced(parts, missing)
  const unrepaired = new Map(missing.map((entry) => [entry.uuid, nameOf(entry)]))
  for (const database of await databasesOf(parts)) await repairDefinitions(parts, database, unrepaired)
  const { total } = await store.loadVerdict()
  const documents = total > differencesMax ? 0 : await repairDocuments(parts, unrepaired)
  if (total > differencesMax) await addDiffering(parts, unrepaired)
  if (documents === 0 && unrepaired.size === 0) await refuseForeignOnly(store, destination)
  return { documents, unrepaired }
}

/** @param unrepaired the collections to leave out; their convergence creates them with their definitions */
async function repairDefinitions(
  parts: RepairParts,
  database: string,
  unrepaired: ReadonlyMap<string, string>,
): Promise<void> {
  const { destination, catalog, definitions, destinationDefinitions, context } = parts
  const existing = await retry(`listing ${database}`, context, () => listCollections(destination, database))
  const all = catalog.inDatabase(database)
  const present = all.filter(({ uuid }) => !unrepaired.has(uuid))
  for (const entry of present) {
    const one = existing.find(({ uuid }) => uuid === entry.destinationUUID)
    if (!one) continue
    const what = `repairing ${nameOf(entry)}`
    await retry(what, context, () => destinationDefinitions.followOptions(entry, entry.wanted.options, one.options))
  }
  const touched = present.length === all.length ? 'all' : new Set(present.map(({ uuid }) => uuid))
  await definitions.reconcile(database, touched, 'copied').catch(refuseUnfollowed)
}

/**
 * Reconciles the documents with an open recheck, except those of unrepaired collections and of collections that are not
 * in the catalog. Returns their number.
 */
async function repairDocuments(parts: RepairParts, unrepaired: ReadonlyMap<string, string>): Promise<number> {
  const { source, catalog } = parts
  let repaired = 0
  for await (const page of pages(parts.store, pageSize)) {
    for (const [uuid, idElements] of byCollection(page)) {
      const entry = catalog.get(uuid)
      if (!entry || unrepaired.has(uuid)) continue
      const identities: Identities = new Map(idElements.map((one) => [identityKey(one), unread(one)]))
      await reconcileDocuments(parts.documents, entry, identities, source.latest)
      repaired += identities.size
    }
  }
  return repaired
}

/**
 * Adds every collection in which a document with an open recheck differs now. The documents are compared again, because
 * a verdict leaves some rechecks of equal documents in the store.
 */
async function addDiffering({ store, catalog, differs }: RepairParts, unrepaired: Map<string, string>): Promise<void> {
  for await (const page of pages(store, searchedPageSize)) {
    for (const [uuid, idElements] of byCollection(page)) {
      const entry = unrepaired.has(uuid) ? undefined : catalog.get(uuid)
      if (entry && (await differs(entry, idElements))) unrepaired.set(uuid, nameOf(entry))
    }
  }
}

function byCollection(page: readonly StoredRecheck[]): Map<string, Buffer[]> {
  const found = new Map<string, Buffer[]>()
  for (const { uuid, idElement } of page) {
    const known = found.get(uuid)
    if (known) known.push(idElement)
    else found.set(uuid, [idElement])
  }
  return found
}

async function* pages(store: VerificationStore, limit: number): AsyncGenerator<StoredRecheck[]> {
  let page = await store.readRechecks(null, limit)
  for (let last = page.at(-1); last; last = page.at(-1)) {
    yield page
    page = await store.readRechecks(last, limit)
  }
}

function nameOf({ database, name }: CatalogEntry): string {
  return namespace(database, name)
}

/**
 * Throws RefusedError WrongState when somebody has dropped a collection on the destination and created another
 * collection or a view with its name. tandem does not drop what it did not create.
 */
async function refuseReplaced({ destination, context }: RepairParts, missing: CatalogEntry[]): Promise<void> {
  for (const entry of missing) {
    const { database, name } = entry
    const [found] = await retry(`listing ${database}`, context, () => listCollections(destination, database, name))
    if (!found) continue
    throw new RefusedError(
      'WrongState',
      `somebody else dropped ${destination.names.shown(nameOf(entry))} on the destination and created it again, and tandem does not touch what it did not create. ` +
        'Drop it there, then send repair again, which creates the collection and copies it from the source. No data on the source was changed.',
    )
  }
}

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

/**
 * Throws RefusedError WrongState when the verdict named only collections that another client created on the
 * destination. A repair does not change them, so the next verdict would be the same.
 */
async function refuseForeignOnly(store: VerificationStore, { names }: Cluster): Promise<void> {
  const { mismatches, total } = await store.loadVerdict()
  const differences = mismatches as Mismatch[]
  const isForeign = ({ kind, by }: Mismatch): boolean => kind === 'collection' && by === 'foreignWrite'
  if (total === 0 || total > differences.length || !differences.every(isForeign)) return
  const named = differences.slice(0, namedMax).map((one) => names.shown(one.namespace))
  const more = total > named.length ? ` and ${total - named.length} more` : ''
  throw new RefusedError(
    'WrongState',
    `nothing was repaired: somebody else created ${named.join(', ')}${more} on the destination, and tandem does not touch what it did not create. ` +
      'Drop them there, then send resume. No data on the source was changed.',
  )
}
