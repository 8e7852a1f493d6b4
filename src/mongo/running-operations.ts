import { setTimeout as sleep } from 'node:timers/promises'
import type { ClientSession, Document } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { writeLimitMS } from './cluster-writer.ts'
import { isTransient } from './errors.ts'
import { routersOf, stayAtOneRouter } from './same-server.ts'

/**
 * Every write that has a time limit ends within this time. A write without a limit may safely run longer, because it
 * names its target by UUID and is idempotent.
 */
const drainLimitMS = 28_000
/** The `type` that `$currentOp` returns for a session that has an open transaction and runs no command. */
const idleSession = 'idleSession'
/**
 * The server aborts a transaction that is older than 60 s (`transactionLifetimeLimitSeconds`). It looks for such
 * transactions every 30 s.
 */
const transactionLimitMS = 95_000

/**
 * Resolves when no server runs a matching operation, or when the time limit of every such operation has passed. It
 * waits for the time limit if this user lacks the privilege to list operations, or if a router does not answer, because
 * no other server shows the operations that a router holds.
 */
export async function untilIdle(cluster: Cluster, match: Document): Promise<void> {
  // A router may forward a write until the router's own time limit has passed. Only then the limit of the shard begins.
  const began = performance.now()
  let limitMS = drainLimitMS + (cluster.sharded ? writeLimitMS : 0)
  let mayList = true
  while (performance.now() - began < limitMS && !cluster.stopped?.aborted) {
    try {
      const found = mayList ? await findRunning(cluster, match) : undefined
      if (mayList && !found) return
      if (found?.['type'] === idleSession) limitMS = Math.max(limitMS, transactionLimitMS)
    } catch (error) {
      mayList = isTransient(error)
    }
    await sleep(50)
  }
}

/** Asks the routers first, because a write that no router holds can no longer reach a shard through a router. */
async function findRunning(cluster: Cluster, match: Document): Promise<Document | undefined> {
  const findIn = async (scope: Document, session: ClientSession): Promise<Document | undefined> => {
    // The operations of all users are listed, because a predecessor may have connected as a different user.
    const pipeline = [
      { $currentOp: { allUsers: true, ...scope } },
      // Between its commands an open transaction is not active, and its commit may still arrive.
      {
        $match: {
          $and: [match, { $or: [{ active: true }, { type: idleSession, 'transaction.parameters.autocommit': false }] }],
        },
      },
      { $limit: 1 },
    ]
    const command = { aggregate: 1, pipeline, cursor: {} }
    const reply = await cluster.run('admin', command, { session, timeoutMS: 5_000 }).finally(() => session.endSession())
    return (reply['cursor'].firstBatch as Document[])[0]
  }
  const foundOnRouters = await Promise.all(
    routersOf(cluster.client).map(async (address) => {
      const session = cluster.startSession()
      stayAtOneRouter(session, address)
      return await findIn({ localOps: true }, session)
    }),
  )
  return foundOnRouters.find((one) => one !== undefined) ?? (await findIn({}, cluster.startSession()))
}
