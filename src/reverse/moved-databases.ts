import type { CommitParts } from '../commit/finish-commit.ts'
import { listCollections, readCommitted } from '../definitions/listing.ts'
import { distributionsByUuid } from '../definitions/sharding.ts'
import { isUserCollection } from '../domain/namespace.ts'
import { retry } from '../mongo/retry.ts'

/**
 * Resolves with true if movePrimary may have moved a database of the new source since the commit. movePrimary clones
 * all unsharded collections of the database under new UUIDs, and the change stream has no events for their documents.
 * Since 8.0, movePrimary does not move collections that the config servers track. The placements of the new source are
 * not stored yet, so this function recognizes a move by its result: among the collections that movePrimary would have
 * moved, none is in the catalog, and there is at least one. An application that replaces all of these collections has
 * the same effect. The convergence is then unnecessary but harmless.
 */
export async function mayHaveMoved({ source, selection, catalog, context }: CommitParts): Promise<boolean> {
  if (!source.sharded) return false
  for (const [database, entries] of catalog.byDatabase()) {
    const unsharded = entries.filter(({ shardKey }) => shardKey === null)
    if (unsharded.length === 0) continue
    const listed = await retry(`listing ${database}`, context, () =>
      readCommitted(source, async () => {
        const [collections, distributions] = await Promise.all([
          listCollections(source, database).then((all) => selection.among(database, all)),
          distributionsByUuid(source, database),
        ])
        return collections.filter(
          ({ uuid, name, type }) => type === 'collection' && isUserCollection(name) && !distributions.has(uuid),
        )
      }),
    )
    const present = new Set(listed.map(({ uuid }) => uuid))
    const isUnknown = listed.some(({ uuid }) => !catalog.get(uuid))
    if (isUnknown && !unsharded.some(({ uuid }) => present.has(uuid))) return true
  }
  return false
}
