import { randomBytes } from 'node:crypto'
import { mkdtempSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Document, MongoClient } from 'mongodb'
import { dataRoot } from './data-root.ts'
import { claimPorts } from './free-ports.ts'
import { guardPath, removeGuardedPath } from './guarded-process.ts'
import type { MongodVersion } from './mongo-binaries.ts'
import { startMongod } from './mongod-process.ts'
import {
  administratorCredentials,
  type CustomRole,
  createUser,
  directUri,
  findPrimary,
  initiate,
  type Member,
  stepDown,
  stepUp,
  waitUntilReady,
  withMember,
} from './replica-set-members.ts'
import type { SteppedClock } from './stepped-clock.ts'
import { startProxy, type TcpProxy } from './tcp-proxy.ts'

export interface ReplicaSetOptions {
  name?: string
  members?: number
  /** Enables access control with a user admin/secret of role root. */
  auth?: boolean
  version?: MongodVersion
  oplogSizeMB?: number
  cacheSizeGB?: number
  /** One port for each member; by default free ports. */
  ports?: number[]
  extraArgs?: string[]
  /** Role of the set in a sharded cluster. */
  role?: 'configsvr' | 'shardsvr'
  /** Key file that the servers of a cluster with `auth` share; by default the set creates its own. */
  keyFile?: string
  /** Keeps `folder` with data and logs when the set stops. */
  keepData?: boolean
  /**
   * Starts a proxy in front of each member and initiates the set with the proxies as the members' addresses, so that clients of
   * the set use them. Members also reach each other through them, so start and restart need working proxies.
   */
  proxied?: boolean
  /** Allows `setLink` of the proxies. */
  variableLinks?: boolean
  /** The wall clock of all members; by default the host's. */
  clock?: SteppedClock
}

export interface ReplicaSet extends AsyncDisposable {
  name: string
  /** URI of the whole set, with the administrator's credentials if access control is enabled. */
  uri: string
  /** URI of each member (`directConnection=true`), never through a proxy. */
  uris: string[]
  /** The members' hosts as in the set's configuration. */
  hosts: string[]
  /** The proxies in the order of `hosts`; empty unless `proxied`. */
  proxies: TcpProxy[]
  folder: string
  primaryPid(): Promise<number>
  /** Steps the primary down. Resolves when there is a primary again: another member, or the same one in a set of one. */
  stepDown(): Promise<void>
  /** Kills every member with SIGKILL, starts them again on the same data, and resolves when the set is ready. */
  restart(): Promise<void>
  stop(): Promise<void>
  /** Creates the user in `admin` and returns the URI with its credentials. Without `auth`, the servers need no user. */
  createUser(name: string, password: string, roles: (string | Document | CustomRole)[]): Promise<string>
}

export async function startReplicaSet(options: ReplicaSetOptions = {}): Promise<ReplicaSet> {
  const { members: memberCount = options.ports?.length ?? 1, auth = false } = options
  const claimed = options.ports ? null : await claimPorts(memberCount)
  const ports = options.ports ?? claimed?.ports ?? []
  const name = options.name ?? `rs${ports[0]}`
  const folder = mkdtempSync(path.join(dataRoot(), 'tandem-mongod-'))
  if (!options.keepData) guardPath(folder)
  const keyFile = options.keyFile ?? path.join(folder, 'key')
  if (auth && !options.keyFile) writeKeyFile(keyFile)

  const link = { variable: options.variableLinks ?? false }
  const proxies = options.proxied ? await Promise.all(ports.map((port) => startProxy('127.0.0.1', port, link))) : []
  const hosts = ports.map((port, index) => `127.0.0.1:${proxies[index]?.port ?? port}`)
  const args = [
    ...['--replSet', name],
    ...(options.role ? [`--${options.role}`] : []),
    ...['--oplogSize', String(options.oplogSizeMB ?? 64)],
    ...['--wiredTigerCacheSizeGB', String(options.cacheSizeGB ?? 0.25)],
    ...(auth ? ['--keyFile', keyFile] : []),
    ...(options.extraArgs ?? []),
  ]
  const members: Member[] = []

  async function startMembers(): Promise<void> {
    const started = await Promise.allSettled(
      ports.map(async (port, index) => {
        const memberFolder = path.join(folder, String(port))
        const { version, clock } = options
        const server = await startMongod({ port, folder: memberFolder, version, args, clock })
        members[index] = { port, host: hosts[index] as string, folder: memberFolder, server }
      }),
    )
    for (const result of started) if (result.status === 'rejected') throw result.reason
  }

  async function killMembers(): Promise<void> {
    await Promise.all(members.map(({ server }) => server.kill()))
  }

  async function stop(): Promise<void> {
    await killMembers()
    await Promise.all(proxies.map((proxy) => proxy.close()))
    if (!options.keepData) removeGuardedPath(folder)
    claimed?.release()
  }

  try {
    await startMembers()
    await initiate(members, { name, auth, configsvr: options.role === 'configsvr' })
    await waitUntilReady(members, administratorCredentials(auth))
  } catch (error) {
    await stop()
    throw error
  }

  const credentials = administratorCredentials(auth)
  const onPrimary = async <T>(work: (client: MongoClient) => Promise<T>): Promise<T> =>
    withMember((await findPrimary(members)).port, work, credentials)

  return {
    name,
    uri: `mongodb://${credentials}${hosts.join(',')}/?replicaSet=${name}`,
    uris: ports.map((port) => directUri(port, credentials)),
    hosts,
    proxies,
    folder,
    primaryPid: async () => (await findPrimary(members)).server.pid,
    stepDown: async () => {
      await onPrimary((client) => stepDown(client, members.length))
      await findPrimary(members)
    },
    restart: async () => {
      await killMembers()
      await startMembers()
      if (members.length > 1) await withMember(ports[0] as number, stepUp, credentials)
      await waitUntilReady(members, credentials)
    },
    stop,
    createUser: async (user, password, roles) => {
      await onPrimary((client) => createUser(client, user, password, roles))
      return `mongodb://${encodeURIComponent(user)}:${encodeURIComponent(password)}@${hosts.join(',')}/?replicaSet=${name}`
    },
    [Symbol.asyncDispose]: stop,
  }
}

/** Writes the shared secret with which the members of a set or a cluster authenticate to each other. */
export function writeKeyFile(file: string): void {
  writeFileSync(file, randomBytes(48).toString('base64'), { mode: 0o600 })
}
