import type { Finding } from '../domain/finding.ts'
import { seriesOf } from '../domain/release.ts'
import type { Check } from './check.ts'

/**
 * The release series with which the tests have run, for each role (test/support/mongo-packages.ts lists their servers).
 * docs/server-versions.md describes the other series.
 */
const tested: Record<'source' | 'destination', readonly string[]> = {
  source: ['5.0', '6.0'],
  destination: ['6.0'],
}

/** Warns about each cluster whose release series was never tested in its role. */
export const checkTestedReleases: Check = ({ facts: { source, destination } }) => [
  ...untestedRelease('source', source.version),
  ...untestedRelease('destination', destination.version),
]

export function untestedRelease(role: 'source' | 'destination', version: string): Finding[] {
  const series = seriesOf(version)
  if (tested[role].includes(series)) return []
  return [
    {
      severity: 'warning',
      name: 'UntestedRelease',
      message:
        `the ${role} runs ${version}. No test of tandem has run with a ${role} of ${series === '' ? 'this release' : series}: ` +
        `the tested sources are ${tested.source.join(' and ')}, the tested destination is ${tested.destination.join(' and ')}`,
      remedy:
        'run tandem rehearse on servers of this release, rehearse the whole migration on copies of both clusters, and rehearse the commit with tandem commit --dry-run before the real one; ' +
        'docs/server-versions.md lists the known differences of 7.0 and 8.0',
    },
  ]
}
