import { mkdtempSync } from 'node:fs'
import path from 'node:path'
import type { Db, Document } from 'mongodb'
import { dataRoot } from './data-root.ts'
import { claimPorts } from './free-ports.ts'
import { guardPath, removeGuardedPath } from './guarded-process.ts'
import { prepareMongos, withClient } from './mongos-process.ts'
import { type ReplicaSet, startReplicaSet, writeKeyFile } from './replica-set.ts'
import { administratorCredentials, type CustomRole, createUser } from './replica-set-members.ts'
import type { SteppedClock } from './stepped-clock.ts'
import { startProxy, type TcpProxy } from './tcp-proxy.ts'

export interface ShardedClusterOptions {
  /** Number of shards; 2 by default. */
  shards?: number
  /** Number of mongoses; 1 by default. */
  mongoses?: number
  /** The wall clock of each mongos; by default the host's. */
  mongosClocks?: (SteppedClock | null)[]
  /** Prefix of the sets' names: `<name>-shard0`, `<name>-config`. */
  name?: string
  /** Enables access control with a user admin/secret of role root in the cluster and in each shard. */
  auth?: boolean
  oplogSizeMB?: number
  cacheSizeGB?: number
  /** Arguments of the shards and the config server. */
  extraArgs?: string[]
  /** Seconds for which a shard keeps the documents of a chunk that has moved away; 0 by default. */
  orphanCleanupDelaySecs?: number
  /** Starts a proxy in front of each mongos. */
  proxied?: boolean
}

/** A shard or the config server, which is a replica set of one member. */
export interface Shard extends Pick<ReplicaSet, 'name' | 'stepDown' | 'restart' | 'primaryPid'> {
  /**
   * URI of the member itself (`directConnection=true`), without routing. Reads include orphans and exclude the data of
   * other shards.
   */
  uri: string
}

export interface Mongos {
  uri: string
  /** Kills it with SIGKILL and starts it again on the same port. It loses its cursors and transactions. */
  restart(): Promise<void>
  /** Returns the text of its log. The mongos stand-in logs each request for an unknown cursor. */
  log(): string
}

export interface ShardedCluster extends AsyncDisposable {
  name: string
  /** URI of all mongoses, with the administrator's credentials if access control is enabled. */
  uri: string
  mongoses: Mongos[]
  /** The proxies in the order of `mongoses`; empty unless `proxied`. */
  proxies: TcpProxy[]
  shards: Shard[]
  config: Shard
  /** Splits the chunk that contains this shard key value at the value. */
  split(namespace: string, middle: Document): Promise<void>
  /** Moves the chunk that contains this shard key value to the shard with that index. */
  moveChunk(namespace: string, find: Document, shard: number): Promise<void>
  /**
   * Creates the user in `admin` and returns the URI with its credentials. Without `auth`, no credentials are required.
   */
  createUser(name: string, password: string, roles: (string | Document | CustomRole)[]): Promise<string>
  stop(): Promise<void>
}

/**
 * With these, change streams advance every second on a cluster without load, and resharding has no minimum duration.
 */
const clusterArgs = [
  ...['--setParameter', 'writePeriodicNoops=true', '--setParameter', 'periodicNoopIntervalSecs=1'],
  ...['--setParameter', 'reshardingMinimumOperationDurationMillis=0'],
]

export async function startShardedCluster(options: ShardedClusterOptions = {}): Promise<ShardedCluster> {
  const { shards: shardCount = 2, mongoses: mongosCount = 1, auth = false, extraArgs = [] } = options
  const claimed = await claimPorts(mongosCount)
  const name = options.name ?? `cluster${claimed.ports[0]}`
  const folder = mkdtempSync(path.join(dataRoot(), 'tandem-cluster-'))
  guardPath(folder)
  const keyFile = auth ? path.join(folder, 'key') : null
  if (keyFile) writeKeyFile(keyFile)
  const credentials = administratorCredentials(auth)

  const running: { stop(): Promise<unknown> }[] = []
  const keep = async <T extends { stop(): Promise<unknown> }>(starting: Promise<T>): Promise<T> => {
    const started = await starting
    running.push(started)
    return started
  }
  const startSet = (setName: string, role: 'configsvr' | 'shardsvr', args: string[] = []) =>
    keep(
      startReplicaSet({
        name: `${name}-${setName}`,
        role,
        extraArgs: [...clusterArgs, ...args, ...extraArgs],
        ...(keyFile ? { auth, keyFile } : {}),
        ...(options.oplogSizeMB === undefined ? {} : { oplogSizeMB: options.oplogSizeMB }),
        ...(options.cacheSizeGB === undefined ? {} : { cacheSizeGB: options.cacheSizeGB }),
      }),
    )
  const orphanArgs = ['--setParameter', `orphanCleanupDelaySecs=${options.orphanCleanupDelaySecs ?? 0}`]

  const stop = async () => {
    await Promise.all(running.splice(0).map((server) => server.stop()))
    removeGuardedPath(folder)
    claimed.release()
  }

  async function startServers() {
    const [config, shards, mongoses, proxies] = await together([
      startSet('config', 'configsvr'),
      together(range(shardCount).map((index) => startSet(`shard${index}`, 'shardsvr', orphanArgs))),
      together(
        claimed.ports.map((port, index) => {
          const mongosName = `${name}-mongos${index}`
          const clock = options.mongosClocks?.[index] ?? undefined
          return keep(prepareMongos({ name: mongosName, port, folder: path.join(folder, mongosName), keyFile, clock }))
        }),
      ),
      together(options.proxied ? claimed.ports.map((port) => keepProxy(startProxy('127.0.0.1', port))) : []),
    ])
    await together(mongoses.map((mongos) => mongos.connect(config)))
    return { config, shards, mongoses, proxies }
  }

  const keepProxy = async (starting: Promise<TcpProxy>): Promise<TcpProxy> => {
    const proxy = await starting
    running.push({ stop: proxy.close })
    return proxy
  }

  try {
    const { config, shards, mongoses, proxies } = await startServers()
    // Administrative commands of a test bypass the proxies.
    const direct = mongosUri([claimed.ports[0] as number], credentials)
    const hosts = claimed.ports.map((port, index) => proxies[index]?.port ?? port)
    const asAdministrator = <T>(work: (admin: Db) => Promise<T>): Promise<T> =>
      withClient(direct, (client) => work(client.db('admin')))

    await asAdministrator(async (admin) => {
      for (const { name: shardName, hosts: members } of shards) {
        await admin.command({ addShard: `${shardName}/${members.join(',')}`, name: shardName })
      }
    })
    return {
      name,
      uri: mongosUri(hosts, credentials),
      mongoses: mongoses.map(({ restart, log }, index) => ({
        uri: mongosUri([hosts[index] as number], credentials),
        restart,
        log,
      })),
      proxies,
      shards: shards.map(shardOf),
      config: shardOf(config),
      split: async (namespace, middle) => {
        await asAdministrator((admin) => admin.command({ split: namespace, middle }))
      },
      moveChunk: async (namespace, find, shard) => {
        const to = shards[shard]?.name
        await asAdministrator((admin) => admin.command({ moveChunk: namespace, find, to }))
      },
      createUser: async (user, password, roles) => {
        await withClient(direct, (client) => createUser(client, user, password, roles))
        return mongosUri(hosts, `${encodeURIComponent(user)}:${encodeURIComponent(password)}@`)
      },
      stop,
      [Symbol.asyncDispose]: stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

function shardOf({ name, uris, stepDown, restart, primaryPid }: ReplicaSet): Shard {
  return { name, uri: uris[0] as string, stepDown, restart, primaryPid }
}

function mongosUri(ports: number[], credentials: string): string {
  return `mongodb://${credentials}${ports.map((port) => `127.0.0.1:${port}`).join(',')}/`
}

const range = (length: number): number[] => Array.from({ length }, (_, index) => index)

/**
 * Like Promise.all, but rejects only after all promises have settled, so that the cleanup covers everything that has
 * started.
 */
async function together<T extends readonly unknown[]>(promises: [...{ [K in keyof T]: Promise<T[K]> }]): Promise<T> {
  const results = await Promise.allSettled(promises)
  for (const result of results) if (result.status === 'rejected') throw result.reason
  return results.map((result) => (result as PromiseFulfilledResult<unknown>).value) as unknown as T
}
