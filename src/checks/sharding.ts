import { listCollections, listDatabases } from '../definitions/listing.ts'
import type { Finding } from '../domain/finding.ts'
import { namespace } from '../domain/namespace.ts'
import { type Check, findingsOf } from './check.ts'
import { refuseInvalidEntries, refuseUnfitEntry } from './refuse-sharding.ts'

/** Checks each entry of `sharding` against the existing collections of the replica set. */
export const checkShardingEntries: Check = async ({ configuration, source, selection }) => {
  const { sharding } = configuration
  if (!sharding) return []
  refuseInvalidEntries(configuration)
  const present = new Set(await listDatabases(source))
  const findings: Finding[] = []
  for (const entry of sharding.shardingEntries) {
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
