import type { Finding } from '../domain/finding.ts'
import { type Check, problem } from './check.ts'

/** Checks the topology of both clusters, and that they are different clusters, whatever their addresses are. */
export const checkTopology: Check = ({ configuration, facts }) => {
  const findings: Finding[] = []
  const { source, destination } = facts
  for (const [role, { topology }] of Object.entries(facts)) {
    if (topology !== 'standalone') continue
    findings.push(
      problem(
        'UnsupportedTopology',
        `the ${role} is a standalone server, which has no change streams`,
        'restart it as a single-node replica set',
      ),
    )
  }
  const mayShard = source.topology === 'replicaSet' && destination.topology === 'sharded'
  if (mayShard && !configuration.sharding) {
    findings.push(
      problem(
        'ShardingRequired',
        'sharding is required for a sync from a replica set to a sharded cluster',
        'add sharding to the request; with an empty shardingEntries array, no collection is sharded',
      ),
    )
  }
  if (!mayShard && configuration.sharding) {
    findings.push(
      problem(
        'ShardingNotAllowed',
        'sharding is only for a sync from a replica set to a sharded cluster',
        'leave it out',
      ),
    )
  }
  if (source.identity !== '' && source.identity === destination.identity) {
    findings.push(
      problem('UnsupportedTopology', 'source and destination are the same cluster', 'give two different clusters'),
    )
  }
  return findings
}
