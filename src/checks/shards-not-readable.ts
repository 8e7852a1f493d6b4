import { errorText } from '../domain/error-text.ts'
import type { Finding } from '../domain/finding.ts'
import type { ShardAnswer } from '../mongo/shard-connections.ts'

const consequences = {
  source: {
    message:
      'progress cannot show how long the sync may be paused (estimatedOplogTimeRemaining), and no alert warns you when the oplog of such a shard becomes too short for the sync',
    privileges: 'find and collStats on local.oplog.rs',
  },
  destination: {
    message:
      'the copy slows down for an overloaded shard only when writes take several seconds, and not when its cache is full or its secondaries lag',
    privileges: 'serverStatus',
  },
} as const

/** Maximum number of shards that a message names. */
const namedMax = 3

/**
 * Returns a finding about shards that tandem cannot query directly. The sync works without these queries.
 * @param answers null if this user may not read `config.shards`
 */
export function shardsNotReadable(
  role: keyof typeof consequences,
  answers: readonly ShardAnswer<unknown>[] | null,
): Finding[] {
  const failed = answers?.flatMap((answer) => ('error' in answer ? [answer] : [])) ?? []
  if (answers && failed.length === 0) return []
  const { message, privileges } = consequences[role]
  const named = failed.slice(0, namedMax).map(({ shard, error }) => `${shard} (${errorText(error)})`)
  const more = failed.length > namedMax ? ` and ${failed.length - namedMax} more` : ''
  const which = answers ? `these shards directly: ${named.join(', ')}${more}` : 'config.shards'
  return [
    {
      severity: 'warning',
      name: 'ShardNotReadable',
      message: `on the ${role} tandem cannot read ${which}. The sync works without that, but ${message}`,
      remedy: `let tandem connect to the hosts in config.shards, and create its user, with the privileges ${privileges}, on each shard; or watch the shards yourself`,
    },
  ]
}
