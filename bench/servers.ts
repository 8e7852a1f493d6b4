import { setTimeout as delay } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { type ReplicaSet, startReplicaSet } from '../test/support/replica-set.ts'
import { directUri } from '../test/support/replica-set-members.ts'
import { type Child, startChild } from './child.ts'
import type { DelayingProxyInput, Link } from './delaying-proxy.ts'
import { cpuSecondsOf } from './measure.ts'

/** The oplog is large enough for every byte that all runs copy to a destination, so that no run pays for truncating it. */
const oplogSizeMB = 16_384

export interface ServerSettings {
  cacheSizeGB: number
  oplogSizeMB: number
}

export function serverSettings({ cacheSizeGB }: { cacheSizeGB: number }): ServerSettings {
  return { cacheSizeGB, oplogSizeMB }
}

export const database = 'bench'

const neverEmptied = ['admin', 'config', 'local']
/** The servers are idle when their average CPU use over one interval is below this share of a core. */
const idleShare = 0.06
const idleIntervalMS = 500
const idlePatienceMS = 60_000

export interface Server {
  uri: string
  /**
   * The URI for tandem and for the programs that it is compared with. If a link is simulated, it is that of a delaying proxy
   * in front of the primary. Otherwise it equals `uri`.
   */
  linkUri: string
  /** The URI of the first member, without discovery of the replica set. */
  directUri: string
  client: MongoClient
  pid: number
}

export interface Pair extends AsyncDisposable {
  source: Server
  destination: Server
}

export interface PairOptions {
  cacheSizeGB: number
  extraArgs?: string[]
  /** Number of members of each replica set; 1 by default. */
  members?: number
  /** The link between the clients that use `linkUri` and each server. Other clients reach the servers directly. */
  link?: Link
}

export async function startPair(options: PairOptions): Promise<Pair> {
  const { members = 1, link = {}, extraArgs = [] } = options
  // The proxy is used for a round trip of 0 too, so that all figures of a comparison include the proxy's own cost.
  const isSimulated = link.roundTripMS !== undefined || link.megabitsPerSecond !== undefined
  const started: { set: ReplicaSet; client: MongoClient; proxy: Child<{ port: number }> | null }[] = []
  const stop = async (): Promise<void> => {
    await Promise.all(started.map(({ client }) => client.close()))
    await Promise.all(started.map(({ proxy }) => proxy?.[Symbol.asyncDispose]()))
    await Promise.all(started.map(({ set }) => set.stop()))
  }
  const start = async (name: string): Promise<Server> => {
    const set = await startReplicaSet({ name, members, ...serverSettings(options), extraArgs })
    const client = new MongoClient(set.uri)
    const server = { set, client, proxy: null as Child<{ port: number }> | null }
    started.push(server)
    if (isSimulated) server.proxy = await startProxyToPrimary(client, link)
    // The members of a replica set announce their own addresses, so only a direct connection stays on the proxy.
    const linkUri = server.proxy ? uriOf((await server.proxy.go()).port, link) : set.uri
    return { uri: set.uri, linkUri, directUri: set.uris[0] as string, client, pid: await set.primaryPid() }
  }
  try {
    return { source: await start('source'), destination: await start('destination'), [Symbol.asyncDispose]: stop }
  } catch (error) {
    await stop()
    throw error
  }
}

function uriOf(port: number, { compressors }: Link): string {
  return directUri(port) + (compressors === undefined ? '' : `&compressors=${compressors}`)
}

async function startProxyToPrimary(client: MongoClient, link: Link): Promise<Child<{ port: number }>> {
  const { primary } = await client.db('admin').command({ hello: 1 })
  const input: DelayingProxyInput = { targetPort: Number(String(primary).split(':')[1]), link }
  return await startChild<{ port: number }>('delaying-proxy', input)
}

/** Drops every database except the server's own. Lifts the write block first, which tandem may have left on a destination. */
export async function empty({ client }: Pick<Server, 'client'>): Promise<void> {
  const admin = client.db('admin')
  await admin.command({ setUserWriteBlockMode: 1, global: false })
  const { databases } = await admin.admin().listDatabases({ nameOnly: true })
  for (const { name } of databases) if (!neverEmptied.includes(name)) await client.db(name).dropDatabase()
}

/** Waits until a checkpoint holds all data and both servers are idle, so that every run starts under the same conditions. */
export async function waitUntilIdle({ source, destination }: Pair): Promise<void> {
  for (const { client } of [source, destination]) await client.db('admin').command({ fsync: 1 })
  await untilIdle([source.pid, destination.pid])
}

/** Waits until these servers use little CPU on average. */
export async function untilIdle(pids: readonly number[]): Promise<void> {
  const cpuSeconds = (): number => pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0)
  const deadline = Date.now() + idlePatienceMS
  for (;;) {
    const before = cpuSeconds()
    await delay(idleIntervalMS)
    const used = cpuSeconds() - before
    if (!(used > (pids.length * idleShare * idleIntervalMS) / 1000)) return
    if (Date.now() > deadline) throw new Error(`the servers were not idle after ${idlePatienceMS / 1000} s`)
  }
}

/** Reads all data of a server once, so that its cache holds the same data before every run. */
export async function warmCache({ client }: Pick<Server, 'client'>): Promise<void> {
  for (const { name } of await client.db(database).listCollections({}, { nameOnly: true }).toArray()) {
    await client.db(database).collection(name).countDocuments({ noSuchField: 1 })
  }
}
