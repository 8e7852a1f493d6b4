import { setTimeout as delay } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { type ReplicaSet, startReplicaSet } from '../test/support/replica-set.ts'
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
  /** Of its only member, without the set's discovery. */
  directUri: string
  client: MongoClient
  pid: number
}

export interface Pair extends AsyncDisposable {
  source: Server
  destination: Server
}

export async function startPair(options: { cacheSizeGB: number; extraArgs?: string[] }): Promise<Pair> {
  const started: { set: ReplicaSet; client: MongoClient }[] = []
  const stop = async (): Promise<void> => {
    await Promise.all(started.map(({ client }) => client.close()))
    await Promise.all(started.map(({ set }) => set.stop()))
  }
  const start = async (name: string): Promise<Server> => {
    const { extraArgs = [] } = options
    const set = await startReplicaSet({ name, ...serverSettings(options), extraArgs })
    const client = new MongoClient(set.uri)
    started.push({ set, client })
    return { uri: set.uri, directUri: set.uris[0] as string, client, pid: await set.primaryPid() }
  }
  try {
    return { source: await start('source'), destination: await start('destination'), [Symbol.asyncDispose]: stop }
  } catch (error) {
    await stop()
    throw error
  }
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
