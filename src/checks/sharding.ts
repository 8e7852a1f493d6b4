import { listCollections, listDatabases } from '../definitions/listing.ts'
import type { Finding } from '../domain/finding.ts'
import { namespace } from '../domain/namespace.ts'
import { type Check, findingsOf } from './check.ts'
import { refuseInvalidEntries, refuseUnfitEntry, refuseUnfitOptions } from './refuse-sharding.ts'

/** Checks each entry of `sharding` against the existing collections of the replica set. */
export const checkShardingEntries: Check = async ({ configuration, source, destination, selection }) => {
  const { sharding } = configuration
  if (!sharding) return []
  refuseInvalidEntries(configuration)
  const present = new Set(await listDatabases(source))
  const findings: Finding[] = []
  for (const [at, entry] of sharding.shardingEntries.entries()) {
    const fitsDestination = async (): Promise<Finding[]> => {
      if (destination.sharded) await refuseUnfitOptions(destination, entry, `sharding.shardingEntries[${at}]`)
      return []
    }
    findings.push(...(await findingsOf(fitsDestination)))
    if (!present.has(entry.database)) continue
    const listed = await listCollections(source, entry.database, entry.collection)
    const [one] = await selection.among(entry.database, listed)
    if (!one) continue
    const fits = async (): Promise<Finding[]> => {
      await refuseUnfitEntry(source, entry, one, sharding.createSupportingIndexes)
      return []
    }
    findings.push(...(await findingsOf(fits, { namespace: namespace(entry.database, entry.collection) })))
  }
  return findings
}
