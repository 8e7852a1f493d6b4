import type { CatalogEntry } from '../domain/catalog.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { readNames } from './list-catalog.ts'

/**
 * Returns the collections that the source has and that somebody else dropped on the destination. Only a convergence
 * creates them again with their documents, because the change stream does not send existing documents again.
 */
export async function findMissing(
  { source, destination }: BothClusters,
  entries: readonly CatalogEntry[],
): Promise<CatalogEntry[]> {
  const created = entries.filter(({ destinationUUID }) => destinationUUID)
  const existing = await readNames(destination, databasesOf(created))
  const gone = created.filter(({ destinationUUID }) => !existing.has(destinationUUID ?? ''))
  if (gone.length === 0) return []
  const wanted = await readNames(source, databasesOf(gone))
  return gone.filter(({ uuid }) => wanted.has(uuid))
}

function databasesOf(entries: readonly CatalogEntry[]): string[] {
  return [...new Set(entries.map(({ database }) => database))]
}
