import { listCollections, listDatabases, listIndexesOf } from '../definitions/listing.ts'
import { refuseExpiry } from '../definitions/refuse-definitions.ts'
import { comparesHashes, warningsOfMethod } from '../domain/compare-method.ts'
import type { Finding } from '../domain/finding.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { sampleHash } from '../mongo/document-hash.ts'
import { type Check, findingsOf, ifAllowed, problem } from './check.ts'
import { availableMemory, refuseLittleMemory } from './memory.ts'

/** Checks that the embedded verifier has enough memory. */
export const checkVerifierMemory: Check = ({ configuration }) => {
  if (configuration.verification.enabled) refuseLittleMemory(availableMemory())
  return []
}

/** Refuses a first pass by hashes if a cluster cannot compute them, or if both clusters compute different ones. */
export const checkHashes: Check = async ({ configuration, source, destination, facts }) => {
  if (!comparesHashes(configuration)) return []
  const [ofSource, ofDestination] = await Promise.all([hashOf(source), hashOf(destination)])
  const unable = ofSource === null ? 'source' : ofDestination === null ? 'destination' : null
  if (unable) return [unsupported(`the ${unable} (${facts[unable].version}) cannot hash documents; ${hashingReleases}`)]
  if (ofSource !== ofDestination)
    return [unsupported('source and destination compute different hashes of one document')]
  return []
}

/** As migration-verifier, which computes the same hash, documents them. */
const hashingReleases = 'servers from 6.0.14, 7.0.6 and 8.0 on can'

function unsupported(message: string): Finding {
  const field = 'verification.initialCompareMethod: toHashedIndexKey is not supported by these clusters'
  return problem(
    'VerificationNotSupported',
    `${field}: ${message}`,
    'leave initialCompareMethod out, or set it to binary',
  )
}

/** Returns null if the server does not have the operators. */
async function hashOf(cluster: Cluster): Promise<string | null> {
  return await ifAllowed(sampleHash(cluster))
}

/** Says what a first pass by hashes does not prove. */
export const checkHashedProof: Check = ({ configuration }) =>
  warningsOfMethod(configuration).map((message) => ({
    severity: 'warning',
    name: 'HashedVerification',
    message,
    remedy: 'leave verification.initialCompareMethod out if the bandwidth allows it',
  }))

/** Refuses TTL indexes for a sync with verification and without index builds. */
export const checkExpiry: Check = async ({ configuration, source, selection }) => {
  if (!configuration.verification.enabled || configuration.buildIndexes !== 'never') return []
  const findings: Finding[] = []
  for (const database of await selection.databases(await listDatabases(source))) {
    const selected = await selection.among(database, await listCollections(source, database))
    const located = selected.flatMap(({ name, uuid }) => (uuid ? [{ database, name, uuid }] : []))
    const indexes = await listIndexesOf(source, located)
    for (const { name, uuid } of located) {
      const expires = async (): Promise<Finding[]> => {
        refuseExpiry(database, name, indexes.get(uuid) ?? [])
        return []
      }
      findings.push(...(await findingsOf(expires, { namespace: namespace(database, name) })))
    }
  }
  return findings
}
