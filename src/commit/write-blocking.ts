import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'

/**
 * User write blocking is a cluster-wide mode of the server (6.0 and later) that outlives the process that set it
 * (https://www.mongodb.com/docs/manual/reference/command/setUserWriteBlockMode/). Asking for the mode it is in already
 * succeeds, so both calls may be repeated.
 */
export async function setWriteBlocking(cluster: Cluster, blocked: boolean): Promise<void> {
  // No write to the server's mind, but one process must not open what its successor has closed.
  cluster.fence()
  await cluster.read('admin', { setUserWriteBlockMode: 1, global: blocked })
}

export function blocksDestination(configuration: StartConfiguration): boolean {
  return configuration.enableUserWriteBlocking !== 'none'
}

/** Whether a commit blocks users' writes on the source. */
export function blocksSource(configuration: StartConfiguration): boolean {
  return configuration.enableUserWriteBlocking === 'sourceAndDestination'
}
