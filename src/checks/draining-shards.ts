import type { Finding } from '../domain/finding.ts'
import { readShards } from '../mongo/config-database.ts'
import { type Check, ifAllowed } from './check.ts'

const consequences = {
  source: {
    message: 'its chunks move to other shards while tandem copies, and the shard disappears when it is empty',
    remedy: 'wait until removeShard reports "completed" there, or expect a slower copy',
  },
  destination: {
    message:
      'tandem places nothing new on it, and its chunks stay there until the commit, because tandem stops the balancer',
    remedy: 'wait until removeShard reports "completed" there, then start',
  },
} as const

/**
 * Finds shards that are being removed from their cluster. `config.shards` marks them in every release
 * (https://www.mongodb.com/docs/manual/tutorial/remove-shards-from-cluster/).
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
