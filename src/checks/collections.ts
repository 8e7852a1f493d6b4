import { listCollections, listDatabases } from '../definitions/listing.ts'
import { refuseLongName, refuseUnsupported } from '../definitions/refuse-definitions.ts'
import { distributionsByUuid } from '../definitions/sharding.ts'
import type { Finding } from '../domain/finding.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { type Check, findingsOf } from './check.ts'
import { refuseDistributions } from './refuse-sharding.ts'

/** Number of databases that are read in parallel. */
const databasesAtOnce = 8

/**
 * Finds every collection of the source that cannot be synced because of its kind or the length of its name on the
 * destination, and in each database the first collection that is being resharded.
 */
export const checkCollections: Check = async ({ configuration, source, destination, selection }) => {
  const entries = configuration.sharding?.shardingEntries ?? []
  const { names } = destination
  const databases = await selection.databases(await listDatabases(source))
  const found = new Map<string, Finding[]>()
  await inParallel(databasesAtOnce, databases, async (database) => {
    const findings: Finding[] = []
    const selected = await selection.among(database, await listCollections(source, database))
    const distributions = names.isIdentity ? new Map() : await distributionsByUuid(source, database)
    const listed = selected.sort((one, other) => (one.name < other.name ? -1 : 1))
    for (const one of listed) {
      // A time-series collection is reported under its own name.
      if (one.name.startsWith('system.buckets.')) continue
      const about = { namespace: namespace(database, one.name) }
      const refuse = async (): Promise<Finding[]> => {
        refuseUnsupported(database, [one], names)
        const isNamed = entries.some((entry) => entry.database === database && entry.collection === one.name)
        const isSharded = destination.sharded && (isNamed || distributions.get(one.uuid)?.key != null)
        refuseLongName(names, namespace(database, one.name), isSharded)
        return []
      }
      findings.push(...(await findingsOf(refuse, about)))
    }
    const distributed = async (): Promise<Finding[]> => {
      await refuseDistributions(source, database, listed)
      return []
    }
    findings.push(...(await findingsOf(distributed)))
    found.set(database, findings)
  })
  return databases.flatMap((database) => found.get(database) ?? [])
}
