import { type BuildIndexes, includedIndexes } from '../domain/build-indexes.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import type { IndexSpecification } from '../domain/definition.ts'
import { inParallel } from '../domain/in-parallel.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import type { BothClusters, Cluster } from '../mongo/cluster.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { BothCatalogs, CatalogState } from './both-catalogs.ts'
import { compareDefinitions, type DefinitionStage, type ListedDefinition } from './compare-definitions.ts'
import { listClusterCatalog, listDefinitions, type ShardsRead } from './list-catalog.ts'
import { readDistributions } from './sharding.ts'

/** Number of databases whose differences are confirmed in parallel. */
const atOnce = 2

interface Identified extends ListedDefinition {
  /** As latin1 text; empty for views. */
  uuid: string
}

export interface DefinitionParts {
  clusters: BothClusters
  selection: Selection
  catalog: Catalog
  context: RetryContext
  buildIndexes: BuildIndexes
}

/**
 * Returns every difference between the synced definitions of the two clusters. Reads both catalogs once, in parallel,
 * and confirms differences with listCollections and listIndexes. Definitions must not change during the call.
 * @param read the catalogs, if they were just read; otherwise this function reads them
 */
export async function findDefinitionMismatches(
  parts: DefinitionParts,
  stage: DefinitionStage,
  read?: BothCatalogs,
): Promise<Mismatch[]> {
  const { clusters, selection, catalog, context, buildIndexes } = parts
  const known = catalog.byDatabase()
  return await retry('comparing definitions', context, async () => {
    const [wanted, existing] = await Promise.all([
      read ? identified(read.source, selection) : readCatalog(clusters.source, selection, 'router'),
      read ? identified(read.destination, selection) : readCatalog(clusters.destination, selection, 'everyShard'),
    ])
    const compare = (database: string, ...[source, destination]: [Identified[], Identified[]]): Mismatch[] => {
      const entries = known.get(database) ?? []
      // A replica set has no shard keys. The source's collections are therefore compared with the key in their catalog
      // entries: the key that was requested when they were created, or none if the destination is a replica set.
      if (!clusters.source.sharded || !clusters.destination.sharded) {
        for (const one of source) one.shardKey = catalog.get(one.uuid)?.shardKey ?? null
      }
      const included = (all: Identified[]): Identified[] => all.map((one) => includedExisting(one, buildIndexes))
      return [
        ...compareDefinitions(database, included(source), included(destination), stage, buildIndexes !== 'never'),
        ...findReplaced(entries, source, destination),
      ]
    }
    const differing = [...new Set([...wanted.keys(), ...existing.keys()])].sort().flatMap((database) => {
      const found = compare(database, wanted.get(database) ?? [], existing.get(database) ?? [])
      return found.length > 0 ? [{ database, namespaces: new Set(found.map((one) => one.namespace)) }] : []
    })
    const confirmed = new Map<string, Mismatch[]>()
    await inParallel(atOnce, differing, async ({ database, namespaces }) => {
      const [source, destination] = await Promise.all([
        readAgain(clusters.source, database, selection, namespaces, 'router'),
        readAgain(clusters.destination, database, selection, namespaces, 'everyShard'),
      ])
      confirmed.set(database, compare(database, source, destination))
    })
    return differing.flatMap(({ database }) => confirmed.get(database) ?? [])
  })
}

/** Returns the definition with only those indexes that the sync creates and compares. */
function includedExisting(one: Identified, buildIndexes: BuildIndexes): Identified {
  const included = (all: IndexSpecification[]): IndexSpecification[] => includedIndexes(all, buildIndexes, one.shardKey)
  const uneven = one.uneven?.filter(({ found }) => included(found).length > 0)
  return { ...one, indexes: included(one.indexes), ...(uneven && { uneven }) }
}

/**
 * Finds collections that another program dropped on the destination and created again. Their definitions may be equal,
 * but they contain nothing that tandem wrote, and only the UUID shows this. Missing collections are already reported by
 * compareDefinitions.
 */
function findReplaced(entries: CatalogEntry[], wanted: Identified[], existing: Identified[]): Mismatch[] {
  const names = new Map(existing.map(({ uuid, name }) => [uuid, name]))
  const existingNames = new Set(existing.map(({ name }) => name))
  const wantedUuids = new Set(wanted.map(({ uuid }) => uuid))
  return entries.flatMap(({ uuid, database, name, destinationUUID }) => {
    if (!wantedUuids.has(uuid) || !existingNames.has(name)) return []
    if (destinationUUID && names.get(destinationUUID) === name) return []
    return [{ namespace: namespace(database, name), kind: 'collection' as const, by: 'foreignWrite' as const }]
  })
}

async function readCatalog(
  cluster: Cluster,
  selection: Selection,
  shards: ShardsRead,
): Promise<Map<string, Identified[]>> {
  const [catalog, distributions] = await Promise.all([
    listClusterCatalog(cluster, (databases) => selection.databases(databases), shards),
    readDistributions(cluster),
  ])
  return await identified({ catalog, distributions }, selection)
}

async function identified(
  { catalog, distributions }: Pick<CatalogState, 'catalog' | 'distributions'>,
  selection: Selection,
): Promise<Map<string, Identified[]>> {
  const keys = new Map(distributions.map(({ uuid, key }) => [uuid, key]))
  const users = new Map(
    [...catalog].map(([database, listed]) => [
      database,
      listed
        .filter(({ name }) => isUserCollection(name))
        .map((one): Identified => ({ ...one, shardKey: keys.get(one.uuid) ?? null })),
    ]),
  )
  return await selection.amongAll(users)
}

/** Reads only the namespaces that differ according to the catalogs. */
async function readAgain(
  cluster: Cluster,
  database: string,
  selection: Selection,
  namespaces: ReadonlySet<string>,
  shards: ShardsRead,
): Promise<Identified[]> {
  const isWanted = ({ name }: { name: string }): boolean =>
    isUserCollection(name) && namespaces.has(namespace(database, name))
  const [listed, distributions] = await Promise.all([
    listDefinitions(cluster, database, isWanted, shards).then((all) => selection.among(database, all)),
    readDistributions(cluster, database),
  ])
  const keys = new Map(distributions.map(({ uuid, key }) => [uuid, key]))
  return listed.map((one) => ({ ...one, shardKey: keys.get(one.uuid) ?? null }))
}
