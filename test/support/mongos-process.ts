import { mkdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { type Document, MongoClient } from 'mongodb'
import type { GuardedProcess } from './guarded-process.ts'
import { ownEnvironment, resolveMongod, resolveMongos } from './mongo-binaries.ts'
import { startServer } from './mongod-process.ts'
import { bundledStandIn } from './mongos-program.ts'
import { type ReplicaSet, startReplicaSet } from './replica-set.ts'
import type { SteppedClock } from './stepped-clock.ts'
import { until } from './until.ts'

export interface MongosOptions {
  port: number
  /** Folder of the log. */
  folder: string
  /** Prefix of the names of its processes. */
  name: string
  keyFile: string | null
  /** Its wall clock; by default the host's. */
  clock?: SteppedClock | undefined
}

/**
 * A mongos that starts in two steps, so that the part that does not need the config server runs while the config server
 * starts.
 */
export interface MongosProcess {
  /** Connects the mongos to the config server, and resolves when the mongos accepts connections. */
  connect(configuration: ReplicaSet): Promise<void>
  /** Kills it with SIGKILL and starts it again. */
  restart(): Promise<void>
  /** Returns the text of the mongos's log. */
  log(): string
  stop(): Promise<void>
}

interface Start {
  connect(configuration: ReplicaSet): Promise<void>
  stop(): Promise<void>
}

/** Prepares a real mongos if one of the mongod's release exists, otherwise the stand-in of test/support/mongos. */
export async function prepareMongos(options: MongosOptions): Promise<MongosProcess> {
  mkdirSync(options.folder, { recursive: true })
  const prepare = await chooseImplementation()
  let current = await prepare(options)
  let configuration: ReplicaSet | null = null
  return {
    connect: async (connected) => {
      configuration = connected
      await current.connect(connected)
    },
    restart: async () => {
      await current.stop()
      current = await prepare(options)
      if (configuration) await current.connect(configuration)
    },
    log: () => readFileSync(logOf(options.folder), 'utf8'),
    stop: () => current.stop(),
  }
}

const logOf = (folder: string): string => path.join(folder, 'mongos.log')

async function chooseImplementation(): Promise<(options: MongosOptions) => Promise<Start>> {
  const resolved = await resolveMongod()
  const mongos = await resolveMongos(resolved)
  if (mongos) return async (options) => prepareReal(mongos, resolved.env, options)
  if (resolved.version.startsWith('6.0.')) return prepareStandIn
  throw new Error(
    `there is no mongos for mongod ${resolved.version}, and the stand-in for a mongos needs a mongod 6.0. ` +
      'Set TANDEM_MONGO_BIN to a folder that contains both mongod and mongos.',
  )
}

function prepareReal(
  mongos: string,
  env: Record<string, string>,
  { port, folder, keyFile, clock }: MongosOptions,
): Start {
  const log = logOf(folder)
  let server: GuardedProcess | null = null
  return {
    connect: async (configuration) => {
      const commandLine = [
        ...[mongos, '--port', String(port), '--bind_ip', '127.0.0.1', '--nounixsocket'],
        ...['--configdb', connectionString(configuration), '--logpath', log],
        ...['--setParameter', 'diagnosticDataCollectionEnabled=false', '--setParameter', 'enableTestCommands=1'],
        ...(keyFile ? ['--keyFile', keyFile] : []),
      ]
      server = await startServer({
        name: 'mongos',
        port,
        commandLine,
        env: { ...env, ...clock?.env },
        log,
        output: path.join(folder, 'mongos.out'),
      })
    },
    stop: async () => await server?.kill(),
  }
}

/**
 * Prepares the stand-in's program and its hidden router, a mongod that runs as a shard server but is not a shard of the cluster.
 * The router stops when the program ends for any reason.
 */
async function prepareStandIn({ port, folder, name, keyFile, clock }: MongosOptions): Promise<Start> {
  const router = await startReplicaSet({
    name: `${name}-router`,
    role: 'shardsvr',
    oplogSizeMB: 16,
    ...(clock ? { clock } : {}),
    ...(keyFile ? { auth: true, keyFile } : {}),
  })
  const asSystem = <T>(work: (client: MongoClient) => Promise<T>): Promise<T> =>
    withClient(systemUri(router.hosts[0] as string, keyFile), work)
  let program: GuardedProcess | null = null

  const stop = async () => {
    await program?.kill()
    await router.stop()
  }
  try {
    // A new shard server has the previous feature compatibility version until it is added to a cluster.
    const upgrade = { setFeatureCompatibilityVersion: '6.0', writeConcern: { w: 'majority' } }
    await asSystem((client) => client.db('admin').command(upgrade))
  } catch (error) {
    await stop()
    throw error
  }
  return {
    connect: async (configuration) => {
      const clusterId = await clusterIdOf(configuration)
      const configsvrConnectionString = connectionString(configuration)
      const shardIdentity = { shardName: router.name, clusterId, configsvrConnectionString }
      await asSystem((client) => client.db('admin').command({ _addShard: 1, shardIdentity }))
      const log = logOf(folder)
      program = await startServer({
        name: 'mongos stand-in',
        port,
        commandLine: [
          ...[process.execPath, await bundledStandIn(), '--port', String(port)],
          ...['--configdb', configsvrConnectionString, '--router', router.hosts[0] as string],
          ...(keyFile ? ['--keyFile', keyFile] : []),
        ],
        env: ownEnvironment(),
        log,
        output: log,
      })
      void program.ended.then(() => router.stop())
    },
    stop,
  }
}

/** Returns the cluster's id, which the config server writes shortly after it first becomes primary. */
async function clusterIdOf(configuration: ReplicaSet): Promise<unknown> {
  // Each attempt has a client of its own, because a client whose first connection fails stays closed.
  return await until('the cluster id is available', () =>
    withClient(configuration.uri, async (client) => {
      const versions = client.db('config').collection<Document>('version', { readConcern: { level: 'majority' } })
      const version = await versions.findOne()
      if (!version) throw new Error('config.version is empty')
      return version['clusterId'] as unknown
    }),
  )
}

function systemUri(host: string, keyFile: string | null): string {
  if (!keyFile) return `mongodb://${host}/?directConnection=true`
  const key = encodeURIComponent(readFileSync(keyFile, 'utf8'))
  return `mongodb://__system:${key}@${host}/?directConnection=true&authSource=local&authMechanism=SCRAM-SHA-256`
}

const connectionString = ({ name, hosts }: ReplicaSet): string => `${name}/${hosts.join(',')}`

export async function withClient<T>(uri: string, work: (client: MongoClient) => Promise<T>): Promise<T> {
  const client = new MongoClient(uri)
  try {
    return await work(client)
  } finally {
    await client.close()
  }
}
