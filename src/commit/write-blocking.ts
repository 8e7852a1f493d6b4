import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf } from '../mongo/errors.ts'

/**
 * User write blocking is a cluster-wide mode of the server (6.0 and later) that outlives the process that set it
 * (https://www.mongodb.com/docs/manual/reference/command/setUserWriteBlockMode/). Both calls may be repeated.
 */
export async function setWriteBlocking(cluster: Cluster, blocked: boolean): Promise<void> {
  try {
    await cluster.read('admin', { setUserWriteBlockMode: 1, global: blocked })
  } catch (error) {
    // Asking for the mode it is in already is an error on some versions; that is what was wanted.
    if (codeOf(error) !== code.illegalOperation) throw error
  }
}
