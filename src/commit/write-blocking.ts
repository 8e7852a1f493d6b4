import { errorText } from '../domain/error-text.ts'
import { FatalError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { notLost } from '../domain/not-lost.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf } from '../mongo/errors.ts'
import { CheckedText } from '../mongo/raw-values.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

/** The value of userWriteBlockMode in serverStatus while user writes are blocked. */
const blockedMode = 2

/**
 * Blocks or unblocks user writes. This is a cluster-wide mode of the server (6.0 and later) that outlives the process
 * that set it (https://www.mongodb.com/docs/manual/reference/command/setUserWriteBlockMode/). Setting the current mode
 * again succeeds, so both commands are repeatable.
 *
 * @param fencedBy the destination, whose lease decides which instance may block or unblock either cluster
 * @param allowed nothing is changed before this resolves
 */
export async function setWriteBlocking(
  cluster: Cluster,
  blocked: boolean,
  fencedBy = cluster,
  allowed: Promise<void> = Promise.resolve(),
): Promise<void> {
  const fence = (): void => fencedBy.fence()
  fence()
  // A block is not set again, because 6.0.27 then briefly reports no block (measured: 7 of 339 polls of serverStatus).
  const [isBlocked] = await both(blocked ? isKnownToBlock(cluster) : Promise.resolve(false), allowed)
  if (isBlocked) return
  try {
    // The server does not treat this command as a write, so the fence is checked when the command is sent. Otherwise a
    // process could undo what its successor has set: lift its block, or block a cluster that it has unblocked.
    const comment = new CheckedText('tandem: setUserWriteBlockMode', fence)
    await cluster.read('admin', { setUserWriteBlockMode: 1, global: blocked, comment })
  } catch (error) {
    throw blockedByAnother(cluster, blocked, error) ?? error
  }
}

/**
 * Returns the failure for a block that another program has set with a reason; null for any other error. Since 8.0.13, a
 * block of a replica set can be set again and lifted only with the reason with which it was set, and tandem gives none
 * (src/mongo/db/s/user_writes_recoverable_critical_section_service.cpp in the server's source). tandem does not lift
 * such a block: it may protect the cluster, for instance while its disks are almost full.
 */
function blockedByAnother(cluster: Cluster, blocked: boolean, error: unknown): FatalError | null {
  if (codeOf(error) !== code.illegalOperation) return null
  const [, reason] = /reason: \w+, current: (\w+)/.exec(error instanceof Error ? error.message : '') ?? []
  if (reason === undefined) return null
  return new FatalError(
    'WritesBlockedByAnother',
    `${blocked ? 'blocking' : 'allowing'} writes: user writes on ${cluster.name} are blocked with the reason ${reason}, which another program has given ` +
      `(${errorText(error)}). The server lifts this block only if the same reason is given. When that reason no longer holds, run ` +
      `db.adminCommand({ setUserWriteBlockMode: 1, global: false, reason: "${reason}" }) on ${cluster.name}, then send resume. ${notLost.progress}`,
    { cause: error },
  )
}

/** Enables user writes on the source again if the configuration lets a commit block them. It can be repeated. */
export async function unblockSource(
  source: Cluster,
  destination: Cluster,
  configuration: StartConfiguration,
  context: RetryContext,
): Promise<void> {
  if (!blocksSource(configuration)) return
  await retry('allowing writes on the source', context, () => setWriteBlocking(source, false, destination))
}

/**
 * Resolves with true when the server reports that user writes are blocked, with false when it reports that they are not,
 * and with null when it reports no mode (mongos, servers before 6.0). Needs the privilege `serverStatus`.
 */
export async function areWritesBlocked(cluster: Cluster): Promise<boolean | null> {
  const status = await cluster.read('admin', { serverStatus: 1, repl: 1, metrics: 0, wiredTiger: 0 })
  const mode = status['repl']?.userWriteBlockMode as number | undefined
  return mode === undefined ? null : mode === blockedMode
}

async function isKnownToBlock(cluster: Cluster): Promise<boolean> {
  try {
    return (await areWritesBlocked(cluster)) === true
  } catch (error) {
    if (codeOf(error) === code.unauthorized) return false
    throw error
  }
}

export function blocksDestination(configuration: StartConfiguration): boolean {
  return configuration.enableUserWriteBlocking !== 'none'
}

/** True if a commit blocks user writes on the source. */
export function blocksSource(configuration: StartConfiguration): boolean {
  return configuration.enableUserWriteBlocking === 'sourceAndDestination'
}
