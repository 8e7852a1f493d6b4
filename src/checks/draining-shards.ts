import type { Finding } from '../domain/finding.ts'
import { readShards } from '../mongo/config-database.ts'
import { type Check, ifAllowed } from './check.ts'

const consequences = {
  source: {
    message: 'its chunks move to other shards while tandem copies, and removeShard can remove it once it is empty',
    remedy: 'wait until removeShard reports "completed" on the source, or accept a slower copy',
  },
  destination: {
    message:
      'tandem places no new data on it, and its chunks stay on it until the commit, because tandem stops the balancer',
    remedy: 'wait until removeShard reports "completed" on the destination, then send start',
  },
} as const

/**
 * Finds shards that are being removed from their cluster. In every release, `config.shards` marks them with `draining`
 * (https://www.mongodb.com/docs/manual/tutorial/remove-shards-from-cluster/). Returns no finding for a cluster whose
 * `config.shards` the user may not read.
 */
export const checkDrainingShards: Check = async ({ source, destination }) => {
  const findings: Finding[] = []
  for (const [role, cluster] of Object.entries({ source, destination })) {
    if (!cluster.sharded) continue
    const draining = (await ifAllowed(readShards(cluster)))?.filter((shard) => shard.draining) ?? []
    const { message, remedy } = consequences[role as keyof typeof consequences]
    for (const { name } of draining) {
      findings.push({
        severity: 'warning',
        name: 'ShardDraining',
        message: `the shard ${name} of the ${role} is draining: ${message}`,
        remedy,
      })
    }
  }
  return findings
}
