import { type ExistingNamespace, type Fate, readExisting } from '../definitions/existing-fate.ts'
import { type ListedCollection, listDatabases } from '../definitions/listing.ts'
import type { Finding } from '../domain/finding.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { type CollectionSize, sizeOf } from '../mongo/sample.ts'
import { type Check, ifAllowed } from './check.ts'

/** Maximum number of collections whose sizes are read in parallel. */
const sizesAtOnce = 16

/**
 * Reports how `existingData: converge` would change each selected namespace of the destination, with the collection's
 * size on both sides. A view is reported only if it would be recreated or dropped.
 */
export const checkExistingData: Check = async ({ configuration, source, destination, selection }) => {
  if (configuration.existingData !== 'converge') return []
  const shardingEntries = configuration.sharding?.shardingEntries ?? []
  const findings: Finding[] = []
  for (const database of await selection.databases(await listDatabases(destination))) {
    const { existing } = await readExisting(source, destination, selection, database, shardingEntries)
    const changed = existing.filter(({ fate, existing: { type } }) => fate !== 'converged' || type !== 'view')
    await inParallel(sizesAtOnce, changed, async (one) => {
      const [wanted, found] = await Promise.all([
        describe(source, database, one.wanted),
        describe(destination, database, one.existing),
      ])
      const name = namespace(database, one.existing.name)
      findings.push(findingOf({ name, shown: destination.names.shown(name) }, one, wanted, found))
    })
  }
  return findings.sort((one, other) => ((one.namespace ?? '') < (other.namespace ?? '') ? -1 : 1))
}

const effects: Record<Fate, { severity: Finding['severity']; effect: string; remedy: string }> = {
  converged: {
    severity: 'info',
    effect: 'its options, indexes and documents are made equal, and only what differs is written',
    remedy: 'none is needed, unless the destination has documents that must be kept',
  },
  recreated: {
    severity: 'warning',
    effect:
      'it is dropped and copied, because no command can give it the definition of the source or the wanted shard key',
    remedy: 'none is needed, unless the destination has documents that must be kept',
  },
  dropped: {
    severity: 'warning',
    effect: 'it is dropped, because the source has no such namespace',
    remedy: 'exclude it by a filter if it must be kept',
  },
}

function findingOf(
  { name, shown }: { name: string; shown: string },
  { fate }: ExistingNamespace,
  wanted: string,
  found: string,
): Finding {
  const { severity, effect, remedy } = effects[fate]
  const message = `${shown} exists on the destination (${found}; on the source ${wanted}): ${effect}`
  return { severity, name: 'ExistingData', namespace: name, message, remedy }
}

async function describe(cluster: Cluster, database: string, one: ListedCollection | null): Promise<string> {
  if (!one) return 'nothing'
  if (one.type !== 'collection') return one.type === 'view' ? 'a view' : 'a time-series collection'
  const size: CollectionSize | null = await ifAllowed(sizeOf(cluster, { database, name: one.name, uuid: one.uuid }))
  return size ? `${size.documents} documents, ${size.bytes} bytes` : 'a collection'
}
