import { listCollections, listDatabases, listIndexes } from '../definitions/listing.ts'
import { refuseExpiry } from '../definitions/refuse-definitions.ts'
import type { Finding } from '../domain/finding.ts'
import { namespace } from '../domain/namespace.ts'
import { type Check, findingsOf } from './check.ts'
import { availableMemory, refuseLittleMemory } from './memory.ts'

/** Checks that the embedded verifier has enough memory. */
export const checkVerifierMemory: Check = ({ configuration }) => {
  if (configuration.verification.enabled) refuseLittleMemory(availableMemory())
  return []
}

/** Refuses TTL indexes for a sync with verification and without index builds. */
export const checkExpiry: Check = async ({ configuration, source, selection }) => {
  if (!configuration.verification.enabled || configuration.buildIndexes !== 'never') return []
  const findings: Finding[] = []
  for (const database of await selection.databases(await listDatabases(source))) {
    for (const { name, uuid } of await selection.among(database, await listCollections(source, database))) {
      if (!uuid) continue
      const expires = async (): Promise<Finding[]> => {
        refuseExpiry(database, name, (await listIndexes(source, database, uuid)) ?? [])
        return []
      }
      findings.push(...(await findingsOf(expires, { namespace: namespace(database, name) })))
    }
  }
  return findings
}
