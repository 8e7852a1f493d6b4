import type { Catalogue, CatalogueEntry } from '../domain/catalogue.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { listCollections, listDatabases, listIndexes } from '../mongo/listing.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { readDistributions } from '../mongo/sharding.ts'
import { compareDefinitions, type DefinitionStage, type ListedDefinition } from './compare-definitions.ts'
import type { Mismatch } from './difference.ts'
import type { BothClusters } from './recheck-documents.ts'

const atOnce = 8

interface Identified extends ListedDefinition {
  /** As latin1 text; empty for views. */
  uuid: string
}

export interface DefinitionParts {
  clusters: BothClusters
  selection: Selection
  catalogue: Catalogue
  context: RetryContext
}

/** Every difference in definitions between two clusters at rest, of what is synced. */
export async function findDefinitionMismatches(
  { clusters, selection, catalogue, context }: DefinitionParts,
  stage: DefinitionStage,
  buildsIndexes: boolean,
): Promise<Mismatch[]> {
  return await retry('comparing definitions', context, async () => {
    const databases = new Set([
      ...(await listDatabases(clusters.source)),
      ...(await listDatabases(clusters.destination)),
    ])
    const mismatches: Mismatch[] = []
    for (const database of (await selection.databases(databases)).sort()) {
      const wanted = await readDefinitions(clusters.source, database, selection)
      const standing = await readDefinitions(clusters.destination, database, selection)
      // What a replica set has no notion of is as it was asked for when the collection was created.
      if (!clusters.source.sharded) {
        for (const one of wanted) one.shardKey = catalogue.get(one.uuid)?.shardKey ?? null
      }
      mismatches.push(...compareDefinitions(database, wanted, standing, stage, buildsIndexes))
      mismatches.push(...findReplaced(catalogue.inDatabase(database), wanted, standing))
    }
    return mismatches
  })
}

/**
 * A collection that was dropped on the destination and created again looks the same, but nothing tandem wrote is in it, and no
 * event of a document tells of that: only its UUID does. One that is missing by name is named as such already.
 */
function findReplaced(entries: CatalogueEntry[], wanted: Identified[], standing: Identified[]): Mismatch[] {
  const names = new Map(standing.map(({ uuid, name }) => [uuid, name]))
  const standingNames = new Set(standing.map(({ name }) => name))
  const wantedUuids = new Set(wanted.map(({ uuid }) => uuid))
  return entries.flatMap(({ uuid, database, name, destinationUUID }) => {
    if (!wantedUuids.has(uuid) || !standingNames.has(name)) return []
    if (destinationUUID && names.get(destinationUUID) === name) return []
    return [{ namespace: namespace(database, name), kind: 'collection' as const, by: 'foreignWrite' as const }]
  })
}

async function readDefinitions(cluster: Cluster, database: string, selection: Selection): Promise<Identified[]> {
  const users = (await listCollections(cluster, database)).filter((one) => isUserCollection(one.name))
  const listed = await selection.among(database, users)
  const distributions = new Map((await readDistributions(cluster, database)).map(({ uuid, key }) => [uuid, key]))
  const definitions = listed.map(({ name, type, uuid, options }) => ({
    name,
    uuid,
    type,
    options,
    shardKey: distributions.get(uuid) ?? null,
    indexes: [] as Identified['indexes'],
  }))
  const indexed = listed.flatMap(({ uuid }, at) => (uuid ? [{ uuid, at }] : []))
  await inParallel(atOnce, indexed, async ({ uuid, at }) => {
    ;(definitions[at] as Identified).indexes = (await listIndexes(cluster, database, uuid)) ?? []
  })
  return definitions
}
