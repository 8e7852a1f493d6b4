import { setTimeout as delay } from 'node:timers/promises'
import { type Document, MongoClient } from 'mongodb'
import { emptyCluster } from './empty-cluster.ts'
import { type ReplicaSet, type ReplicaSetOptions, startReplicaSet } from './replica-set.ts'

/**
 * Replica sets with the default options that a worker keeps between test files (shared-worker.ts). A set that was restarted,
 * stepped down, or changed in another way that `cleaned` cannot undo is stopped instead.
 */
interface KeptSet {
  set: ReplicaSet
  pid: number
  /** The settings of the set when it was new. */
  settings: string
}

const free: KeptSet[] = []
/**
 * False in other processes than workers, and after a test of the file has failed, because that test may still be running
 * and use its sets.
 */
let isKeeping = false

const appName = 'kept-sets'
/** tandem warns when an oplog of 64 MB is full. The oplog of a kept set must not be full much sooner than a new one. */
const oplogBytesMax = 16_000_000
const closePatienceMs = 1_000
const commandTimeoutMs = 20_000

/** Keeps the sets that are given back from now on. */
export function keepSets(): void {
  isKeeping = true
}

/** Stops the sets that are given back from now on. */
export function stopSets(): void {
  isKeeping = false
}

/** Returns the pids of the servers of the sets that no test uses. */
export const keptPids = (): number[] => free.map(({ pid }) => pid)

/**
 * Returns a set that an earlier file has given back, or a new one. Its `stop` gives it back. A set with options is always
 * new, and its `stop` stops it.
 */
export async function borrowReplicaSet(options: ReplicaSetOptions = {}): Promise<ReplicaSet> {
  if (Object.keys(options).length > 0) return await startReplicaSet(options)
  const kept = free.pop() ?? (await startKept())
  let givenBack: Promise<void> | null = null
  const stop = () => (givenBack ??= giveBack(kept))
  return { ...kept.set, stop, [Symbol.asyncDispose]: stop }
}

async function startKept(): Promise<KeptSet> {
  const set = await startReplicaSet()
  await using client = clientOf(set)
  return { set, pid: await set.primaryPid(), settings: (await readSettings(client)).others }
}

async function giveBack(kept: KeptSet): Promise<void> {
  const isClean = isKeeping && (await cleaned(kept).catch(() => false))
  if (isClean) free.push(kept)
  else await kept.set.stop()
}

const clientOf = ({ uri }: ReplicaSet): MongoClient =>
  new MongoClient(uri, { appName, serverSelectionTimeoutMS: 5_000, socketTimeoutMS: commandTimeoutMs })

/** Resets the set to the state of a new one. Returns false if that is impossible. */
async function cleaned({ set, settings }: KeptSet): Promise<boolean> {
  await using client = clientOf(set)
  const admin = client.db('admin')
  const { activeFailPoints, others } = await readSettings(client)
  if (others !== settings) return false
  for (const name of activeFailPoints) await admin.command({ configureFailPoint: name, mode: 'off' })
  if (!(await areOthersClosed(client))) return false
  const { size } = await client.db('local').command({ collStats: 'oplog.rs' })
  if (size > oplogBytesMax) return false
  // A cursor outlives the connection that opened it. The next file must not find the cursors of this one.
  await admin.command({ killAllSessions: [] })
  await emptyCluster(client)
  await admin.command({ dropAllUsersFromDatabase: 1 })
  await admin.command({ dropAllRolesFromDatabase: 1 })
  return true
}

const failPointPrefix = 'failpoint.'
/** Fields of every reply. */
const clusterTimes = new Set(['$clusterTime', 'operationTime'])

/**
 * Reads the fail points that are active and, as text, everything else that does not change by itself: the parameters of the
 * server and the cluster, the default concerns, and the election. A restarted set has had another election.
 */
async function readSettings(client: MongoClient): Promise<{ activeFailPoints: string[]; others: string }> {
  const admin = client.db('admin')
  const all = Object.entries(await admin.command({ getParameter: '*' }))
  const isFailPoint = ([name]: [string, unknown]): boolean => name.startsWith(failPointPrefix)
  const active = all.filter((entry) => isFailPoint(entry) && (entry[1] as Document)['mode'] !== 0)
  const { clusterParameters } = await admin.command({ getClusterParameter: '*' })
  const { defaultReadConcern, defaultWriteConcern } = await admin.command({ getDefaultRWConcern: 1 })
  const { electionId } = await admin.command({ hello: 1 })
  return {
    activeFailPoints: active.map(([name]) => name.slice(failPointPrefix.length)),
    others: JSON.stringify([
      all.filter((entry) => !isFailPoint(entry) && !clusterTimes.has(entry[0])),
      ...[clusterParameters, defaultReadConcern, defaultWriteConcern, electionId],
    ]),
  }
}

/**
 * Waits until all other connections are closed, which the server may notice a moment later. An open one may still
 * write.
 */
async function areOthersClosed(client: MongoClient): Promise<boolean> {
  const others = [
    { $currentOp: { allUsers: true, idleConnections: true } },
    // Servers also connect to themselves.
    {
      $match: {
        client: { $exists: true },
        appName: { $ne: appName },
        'clientMetadata.driver.name': { $not: /^NetworkInterface/ },
      },
    },
    { $limit: 1 },
  ]
  const deadline = Date.now() + closePatienceMs
  for (;;) {
    const found = await client.db('admin').aggregate(others).toArray()
    if (found.length === 0) return true
    if (Date.now() > deadline) return false
    await delay(20)
  }
}
