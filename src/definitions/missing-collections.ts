import type { CatalogEntry } from '../domain/catalog.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import type { BothClusters, Cluster } from '../mongo/cluster.ts'
import { readNames } from './list-catalog.ts'

/**
 * Returns the collections that exist on the source but were dropped on the destination by another program. Only a
 * convergence can restore their documents, because the change stream does not deliver existing documents again.
 */
export async function findMissing(
  { source, destination }: BothClusters,
  entries: readonly CatalogEntry[],
): Promise<CatalogEntry[]> {
  const created = entries.filter(({ destinationUUID }) => destinationUUID)
  const existing = await readNames(destination, databasesOf(created))
  const dropped = created.filter(({ destinationUUID }) => !existing.has(destinationUUID ?? ''))
  if (dropped.length === 0) return []
  const wanted = await readNames(source, databasesOf(dropped))
  return dropped.filter(({ uuid }) => wanted.has(uuid))
}

/** @param during what tandem was doing when it found that the collection is missing on this destination */
export function droppedByAnother(
  { names }: Pick<Cluster, 'names'>,
  { database, name }: CatalogEntry,
  during: string,
): FatalError {
  return new FatalError(
    'DestinationConflict',
    `${during}: ${names.shown(namespace(database, name))} was dropped on the destination by somebody else. Stop what writes there, then send resume, which creates the collection again and copies it. ${notLost.source}`,
  )
}

function databasesOf(entries: readonly CatalogEntry[]): string[] {
  return [...new Set(entries.map(({ database }) => database))]
}
