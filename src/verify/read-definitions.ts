import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { listCollections, listDatabases, listIndexes } from '../mongo/listing.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { compareDefinitions, type DefinitionStage, type ListedDefinition } from './compare-definitions.ts'
import type { Mismatch } from './difference.ts'
import type { BothClusters } from './recheck-documents.ts'

const atOnce = 8

/** Every difference in definitions between two clusters at rest. */
export async function findDefinitionMismatches(
  clusters: BothClusters,
  stage: DefinitionStage,
  buildsIndexes: boolean,
  context: RetryContext,
): Promise<Mismatch[]> {
  return await retry('comparing definitions', context, async () => {
    const databases = new Set([
      ...(await listDatabases(clusters.source)),
      ...(await listDatabases(clusters.destination)),
    ])
    const mismatches: Mismatch[] = []
    for (const database of [...databases].sort()) {
      const wanted = await readDefinitions(clusters.source, database)
      const standing = await readDefinitions(clusters.destination, database)
      mismatches.push(...compareDefinitions(database, wanted, standing, stage, buildsIndexes))
    }
    return mismatches
  })
}

async function readDefinitions(cluster: Cluster, database: string): Promise<ListedDefinition[]> {
  const listed = (await listCollections(cluster, database)).filter((one) => isUserCollection(one.name))
  const definitions = listed.map(({ name, type, options }) => ({
    name,
    type,
    options,
    indexes: [] as ListedDefinition['indexes'],
  }))
  const indexed = listed.flatMap(({ uuid }, at) => (uuid ? [{ uuid, at }] : []))
  await inParallel(atOnce, indexed, async ({ uuid, at }) => {
    ;(definitions[at] as ListedDefinition).indexes = (await listIndexes(cluster, database, uuid)) ?? []
  })
  return definitions
}
