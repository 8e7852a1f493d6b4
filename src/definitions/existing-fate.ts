import { changesByCollMod, isCapped } from '../domain/definition.ts'
import { isUserCollection } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { type ListedCollection, listCollections, readCommitted } from './listing.ts'

/**
 * What becomes of a namespace that exists on the destination when a sync begins with `existingData: converge`.
 *
 * converged   its options and indexes are made equal in place, and so are its documents
 * recreated   it is dropped and copied, because no command gives it the source's definition
 * dropped     the source has no such namespace
 */
export type Fate = 'converged' | 'recreated' | 'dropped'

export interface ExistingNamespace {
  existing: ListedCollection
  /** The source's collection or view of that name. */
  wanted: ListedCollection | null
  fate: Fate
}

/** The selected namespaces of one database of the destination. System collections are left alone. */
export async function readExisting(
  source: Cluster,
  destination: Cluster,
  selection: Selection,
  database: string,
): Promise<{ wanted: ListedCollection[]; existing: ExistingNamespace[] }> {
  const [wanted, listed] = await Promise.all([
    readCommitted(source, async () => selection.among(database, await listCollections(source, database))),
    listCollections(destination, database).then((all) => selection.among(database, all)),
  ])
  const byName = new Map(wanted.filter(({ name }) => isUserCollection(name)).map((one) => [one.name, one]))
  const existing = listed.filter(({ name }) => isUserCollection(name))
  return {
    wanted,
    existing: existing.map((one) => {
      const counterpart = byName.get(one.name) ?? null
      return { existing: one, wanted: counterpart, fate: fateOf(one, counterpart) }
    }),
  }
}

function fateOf(existing: ListedCollection, wanted: ListedCollection | null): Fate {
  if (!wanted) return 'dropped'
  if (existing.type !== wanted.type) return 'recreated'
  // A view has no documents. It gets its new definition with all other views.
  if (existing.type === 'view') return 'converged'
  // Insertion order is part of a capped collection's content, so its documents cannot be made equal one by one.
  if (isCapped(existing.options) || isCapped(wanted.options)) return 'recreated'
  return changesByCollMod(existing.options, wanted.options) ? 'converged' : 'recreated'
}
