import { changesByCollMod, isCapped } from '../domain/definition.ts'
import { isUserCollection } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selects } from '../mongo/selection.ts'
import { type ListedCollection, listCollections, readCommitted } from './listing.ts'
import {
  type Distribution,
  distributionsByUuid,
  keepsDistribution,
  type ShardingEntries,
  wantedShardKey,
} from './sharding.ts'

/**
 * What happens to a namespace that exists on the destination when a sync begins with `existingData: converge`.
 *
 * converged   its options, indexes and documents are made equal in place
 * recreated   it is dropped and copied, because no command gives it the source's definition or the wanted shard key, or
 *             because it is capped
 * dropped     the source has no selected namespace of that name
 */
export type Fate = 'converged' | 'recreated' | 'dropped'

export interface ExistingNamespace {
  existing: ListedCollection
  /** The source's collection or view of that name. */
  wanted: ListedCollection | null
  /** The distribution of the existing collection; null if the config servers do not track the collection. */
  distribution: Distribution | null
  fate: Fate
}

/**
 * Reads the selected namespaces of one database on both clusters. `existing` contains no system collections. It contains
 * every namespace of the destination that has the name of a selected namespace of the source, even a time-series
 * collection that the sync skips.
 * @param shardingEntries the collections of a replica set that become sharded on the destination
 */
export async function readExisting(
  source: Cluster,
  destination: Cluster,
  selection: Selects,
  database: string,
  shardingEntries: ShardingEntries,
): Promise<{
  wanted: ListedCollection[]
  existing: ExistingNamespace[]
  /** The source's tracked collections, by UUID. */
  sourceKeys: Map<string, Distribution>
}> {
  const [wanted, all, sourceKeys, destinationKeys] = await Promise.all([
    readCommitted(source, async () => selection.among(database, await listCollections(source, database))),
    listCollections(destination, database),
    distributionsByUuid(source, database),
    distributionsByUuid(destination, database),
  ])
  const keepsShards = (one: ListedCollection, counterpart: ListedCollection): boolean => {
    const wantedKey = wantedShardKey(source, sourceKeys, shardingEntries, { database, ...counterpart })
    return !destination.sharded || keepsDistribution(source, destinationKeys.get(one.uuid), wantedKey)
  }
  const byName = new Map(wanted.filter(({ name }) => isUserCollection(name)).map((one) => [one.name, one]))
  const selected = new Set(await selection.among(database, all))
  const existing = all.filter((one) => isUserCollection(one.name) && (selected.has(one) || byName.has(one.name)))
  return {
    wanted,
    sourceKeys,
    existing: existing.map((one) => {
      const counterpart = byName.get(one.name) ?? null
      const fate = fateOf(one, counterpart)
      return {
        existing: one,
        wanted: counterpart,
        distribution: destinationKeys.get(one.uuid) ?? null,
        fate: fate === 'converged' && counterpart && !keepsShards(one, counterpart) ? 'recreated' : fate,
      }
    }),
  }
}

function fateOf(existing: ListedCollection, wanted: ListedCollection | null): Fate {
  if (!wanted) return 'dropped'
  if (existing.type !== wanted.type) return 'recreated'
  // A view has no documents. It gets its new definition together with all other views.
  if (existing.type === 'view') return 'converged'
  // Insertion order is part of a capped collection's content, so its documents cannot be made equal one by one.
  if (isCapped(existing.options) || isCapped(wanted.options)) return 'recreated'
  return changesByCollMod(existing.options, wanted.options) ? 'converged' : 'recreated'
}
