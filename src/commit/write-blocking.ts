import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf } from '../mongo/errors.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

/** Of userWriteBlockMode in serverStatus: user writes are blocked. */
const blockedMode = 2

/**
 * User write blocking is a cluster-wide mode of the server (6.0 and later) that outlives the process that set it
 * (https://www.mongodb.com/docs/manual/reference/command/setUserWriteBlockMode/). Asking for the mode it is in already
 * succeeds, so both calls may be repeated.
 *
 * @param fencedBy the destination, whose lease decides who may block or unblock either cluster
 */
export async function setWriteBlocking(cluster: Cluster, blocked: boolean, fencedBy = cluster): Promise<void> {
  // No write to the server's mind, but one process must not open what its successor has closed.
  fencedBy.fence()
  // Asked again for the block that it has, 6.0.27 shows no block for an instant (measured: 7 of 339 polls of serverStatus).
  if (blocked && (await knownToBlock(cluster))) return
  await cluster.read('admin', { setUserWriteBlockMode: 1, global: blocked })
}

/** Users may write on the source again, where a commit blocks it. May be repeated. */
export async function unblockSource(
  source: Cluster,
  destination: Cluster,
  configuration: StartConfiguration,
  context: RetryContext,
): Promise<void> {
  if (!blocksSource(configuration)) return
  await retry('allowing writes on the source', context, () => setWriteBlocking(source, false, destination))
}

/** As the server shows it; null where it does not (a mongos, a release older than 6.0). Needs the privilege `serverStatus`. */
export async function areWritesBlocked(cluster: Cluster): Promise<boolean | null> {
  const status = await cluster.read('admin', { serverStatus: 1, repl: 1, metrics: 0, wiredTiger: 0 })
  const mode = status['repl']?.userWriteBlockMode as number | undefined
  return mode === undefined ? null : mode === blockedMode
}

async function knownToBlock(cluster: Cluster): Promise<boolean> {
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

/** Whether a commit blocks users' writes on the source. */
export function blocksSource(configuration: StartConfiguration): boolean {
  return configuration.enableUserWriteBlocking === 'sourceAndDestination'
}
