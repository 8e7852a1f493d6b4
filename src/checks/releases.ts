import type { Finding } from '../domain/finding.ts'
import { isOlderSeries, seriesOf } from '../domain/release.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { ClusterFacts } from '../mongo/identity.ts'
import { type Check, ifAllowed, problem } from './check.ts'

/**
 * For each release series, the last patch release with a known bug of change streams: events of collections that are
 * renamed, dropped or created again may name the wrong collection (release notes of mongosync 1.7.2).
 */
const wrongEventsUpTo: Record<string, number> = { '6.0': 12, '7.0': 3 }

/** True if the change streams of this release report renames and drops correctly. */
export function reportsDefinitionsCorrectly(version: string): boolean {
  const [, series = '', patch = ''] = /^(\d+\.\d+)\.(\d+)/.exec(version) ?? []
  const last = wrongEventsUpTo[series]
  return last === undefined || Number(patch) > last
}

export const checkReleases: Check = ({ facts: { source } }) => {
  if (reportsDefinitionsCorrectly(source.version)) return []
  return [
    {
      severity: 'warning',
      name: 'KnownServerFault',
      message: `the source runs ${source.version}, whose change streams may report renamed, dropped and newly created collections incorrectly`,
      remedy:
        'upgrade it to the latest patch release first, or do not rename, drop or create collections until the sync is committed',
    },
  ]
}

/**
 * Refuses a cluster whose featureCompatibilityVersion (FCV) differs from its release, during or after an upgrade or a
 * downgrade. Such a cluster has the commands and change streams of the older release
 * (https://www.mongodb.com/docs/manual/reference/command/setFeatureCompatibilityVersion/).
 */
export const checkCompatibility: Check = async ({ source, destination, facts }) => {
  const ofBoth = [compatibilityOf(source, facts.source), compatibilityOf(destination, facts.destination)]
  return (await Promise.all(ofBoth)).flat()
}

async function compatibilityOf(cluster: Cluster, { version, topology }: ClusterFacts): Promise<Finding[]> {
  // A router has no FCV, and its users cannot read the FCV of the config servers.
  if (topology === 'sharded') return []
  const reply = await ifAllowed(cluster.read('admin', { getParameter: 1, featureCompatibilityVersion: 1 }))
  const finding = incompatible(
    cluster.name,
    version,
    reply?.['featureCompatibilityVersion'] as Compatibility | undefined,
  )
  return finding ? [finding] : []
}

export interface Compatibility {
  version?: string
  targetVersion?: string
  previousVersion?: string
}

/**
 * Returns a finding if the featureCompatibilityVersion differs from the release or is changing. Returns null otherwise,
 * and if it is unknown.
 */
export function incompatible(cluster: string, version: string, found: Compatibility | undefined): Finding | null {
  const series = seriesOf(version)
  if (!found?.version || (found.version === series && !found.targetVersion)) return null
  const state = found.targetVersion
    ? `is changing its featureCompatibilityVersion from ${found.previousVersion ?? found.version} to ${found.targetVersion}`
    : `has featureCompatibilityVersion ${found.version}`
  // Since 7.0, the command requires the field `confirm`.
  const confirmed = isOlderSeries(version, '7.0') ? `"${series}"` : `"${series}", confirm: true`
  return problem(
    'UnsupportedVersion',
    `${cluster} runs ${version} and ${state}`,
    `run setFeatureCompatibilityVersion ${confirmed} there (going back to the older release is harder afterwards)`,
  )
}
