import type { Finding } from '../domain/finding.ts'
import { isOlderSeries, seriesOf } from '../domain/release.ts'
import { code, codeOf } from '../mongo/errors.ts'
import { type Check, type CheckedClusters, problem } from './check.ts'

/** Checks that a sync is supported between the releases of the two clusters. */
export const checkVersions: Check = (clusters) => {
  const { source, destination } = clusters.facts
  const findings: Finding[] = []
  const unsupported = (message: string, remedy: string): void =>
    void findings.push(problem('UnsupportedVersion', message, remedy))
  if (source.major < 5) {
    unsupported(`the source runs ${source.version}; 5.0 or later is needed`, 'upgrade it')
  } else if (source.major < 6) findings.push(...forOldSource(clusters))
  if (destination.major < 6) {
    unsupported(`the destination runs ${destination.version}; 6.0 or later is needed`, 'upgrade it')
  } else if (isOlderSeries(destination.version, source.version) || destination.major > source.major + 2) {
    unsupported(
      `the destination (${destination.version}) must not be older than the source (${source.version}) nor more than two major versions newer`,
      'upgrade one of them',
    )
  }
  return findings
}

function forOldSource({ configuration, facts: { source } }: CheckedClusters): Finding[] {
  const findings: Finding[] = []
  if (configuration.writeBlockingGiven) {
    findings.push(
      problem(
        'WriteBlockingNotSupported',
        `enableUserWriteBlocking cannot be set for a source older than 6.0 (it is ${source.version})`,
        'leave it out',
      ),
    )
  }
  if (source.topology === 'sharded') {
    // A router of such a release cannot read a collection by its UUID.
    findings.push(
      problem(
        'UnsupportedVersion',
        `the source is a sharded cluster of ${source.version}; sharded sources need 6.0 or later`,
        'upgrade it',
      ),
    )
  }
  findings.push({
    severity: 'info',
    name: 'DefinitionsFrozen',
    message: `the source runs ${source.version}: a source older than 6.0 does not report when a collection, an index or an option is created or changed. tandem finds a new collection within seconds and converges it, and follows indexes at commit`,
    remedy: 'to keep canCommit true, create no collections on the source until the sync is committed',
  })
  return findings
}

/**
 * Checks that the destination supports bypassEmptyTsReplacement, which makes a write keep a top-level Timestamp(0, 0).
 * The probe updates a document that does not exist.
 */
export const checkPatchRelease: Check = async ({ destination, facts }) => {
  const { version, major } = facts.destination
  if (major < 6) return [] // checkVersions reports it
  try {
    // `read` sends this update, because it changes nothing and so needs neither a lease nor majority acknowledgement.
    await destination.read(destination.metadataDatabase, {
      update: 'probe',
      updates: [{ q: { _id: 0 }, u: { $unset: { probe: '' } } }],
      bypassEmptyTsReplacement: true,
      ...(destination.writesCarryBypass ? { mayBypassWriteBlocking: true } : {}),
    })
  } catch (error) {
    if (codeOf(error) !== code.unknownField) throw error
    return [
      problem(
        'UnsupportedVersion',
        `the destination (${version}) cannot keep an empty timestamp as it is (bypassEmptyTsReplacement)`,
        `upgrade it to ${releaseThatKeepsTimestamps(version)} or later`,
      ),
    ]
  }
  return []
}

/**
 * Returns the first release of this series or of a later one that has bypassEmptyTsReplacement (SERVER-88750). The
 * rapid releases 7.1 to 7.3 do not have it (https://github.com/mongodb/mongo-tools, common/db/empty_timestamp.go).
 */
export function releaseThatKeepsTimestamps(version: string): string {
  const series = seriesOf(version)
  if (series === '6.0') return '6.0.17'
  return isOlderSeries(version, '7.1') ? '7.0.13' : '8.0'
}
