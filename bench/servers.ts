import { setTimeout as delay } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { type ReplicaSet, startReplicaSet } from '../test/support/replica-set.ts'
import { directUri } from '../test/support/replica-set-members.ts'
import { type Child, startChild } from './child.ts'
import type { DelayingProxyInput } from './delaying-proxy.ts'
import { cpuSecondsOf } from './measure.ts'

/** The oplog holds every byte that is copied to a destination in all runs, so that none of them pays for truncating it. */
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
/** A server is at rest when it uses less than this share of a core over one look. */
const restingShare = 0.06
const restLookMS = 500
const restPatienceMS = 60_000

export interface Server {
  uri: string
  /** What tandem connects to: with a round trip, a delaying proxy before the primary; otherwise the same as `uri`. */
  tandemUri: string
  /** Of its only member, without the set's discovery. */
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
  /** Of each replica set; one unless given. */
  members?: number
  /** Between tandem and each server. Everything else reaches the servers without a delay. */
  roundTripMS?: number
}

export async function startPair(options: PairOptions): Promise<Pair> {
  const { members = 1, roundTripMS = 0, extraArgs = [] } = options
  const started: { set: ReplicaSet; client: MongoClient; proxy: Child<{ port: number }> | null }[] = []
  const stop = async (): Promise<void> => {
    await Promise.all(started.map(({ client }) => client.close()))
    await Promise.all(started.map(({ proxy }) => proxy?.[Symbol.asyncDispose]()))
    await Promise.all(started.map(({ set }) => set.stop()))
  }
  const start = async (name: string): Promise<Server> => {
    const set = await startReplicaSet({ name, members, ...serverSettings(options), extraArgs })
    const client = new MongoClient(set.uri)
    const part = { set, client, proxy: null as Child<{ port: number }> | null }
    started.push(part)
    if (roundTripMS > 0) part.proxy = await startProxyBefore(client, roundTripMS)
    // The members of a set announce their own addresses, so the way through the proxy is a direct connection.
    const tandemUri = part.proxy ? directUri((await part.proxy.go()).port) : set.uri
    return { uri: set.uri, tandemUri, directUri: set.uris[0] as string, client, pid: await set.primaryPid() }
  }
  try {
    return { source: await start('source'), destination: await start('destination'), [Symbol.asyncDispose]: stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function startProxyBefore(client: MongoClient, roundTripMS: number): Promise<Child<{ port: number }>> {
  const { primary } = await client.db('admin').command({ hello: 1 })
  const input: DelayingProxyInput = { targetPort: Number(String(primary).split(':')[1]), roundTripMS }
  return await startChild<{ port: number }>('delaying-proxy', input)
}

/** Drops every database, also on a destination that tandem left blocked for writes. */
export async function empty({ client }: Server): Promise<void> {
  const admin = client.db('admin')
  await admin.command({ setUserWriteBlockMode: 1, global: false })
  const { databases } = await admin.admin().listDatabases({ nameOnly: true })
  for (const { name } of databases) if (!neverEmptied.includes(name)) await client.db(name).dropDatabase()
}

/** Contestants begin alike: everything is in a checkpoint and neither server is still working on what came before. */
export async function settle({ source, destination }: Pair): Promise<void> {
  for (const { client } of [source, destination]) await client.db('admin').command({ fsync: 1 })
  const deadline = Date.now() + restPatienceMS
  for (;;) {
    const before = cpuSecondsOf(source.pid) + cpuSecondsOf(destination.pid)
    await delay(restLookMS)
    const used = cpuSecondsOf(source.pid) + cpuSecondsOf(destination.pid) - before
    if (!(used > (2 * restingShare * restLookMS) / 1000)) return
    if (Date.now() > deadline) throw new Error(`the servers did not come to rest in ${restPatienceMS / 1000} s`)
  }
}

/** Reads a server's whole data once, so that its cache holds the same for every contestant. */
export async function readThrough({ client }: Server): Promise<void> {
  for (const { name } of await client.db(database).listCollections({}, { nameOnly: true }).toArray()) {
    await client.db(database).collection(name).countDocuments({ noSuchField: 1 })
  }
}
