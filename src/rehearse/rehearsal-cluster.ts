import { type Document, MongoClient, type MongoClientOptions } from 'mongodb'
import { isUserDatabase, metadataDatabases } from '../domain/namespace.ts'

const selectionTimeoutMS = 10_000
/**
 * Time limit of a command, far longer than any command of a rehearsal takes. Without this limit, Ctrl-C would wait for a
 * cluster without a majority.
 */
const answerTimeoutMS = 120_000

export const clientOptions: MongoClientOptions = {
  appName: 'tandem rehearse',
  serverSelectionTimeoutMS: selectionTimeoutMS,
  socketTimeoutMS: answerTimeoutMS,
  readPreference: 'primary',
}

/** The value of `userWriteBlockMode` in serverStatus while user writes are blocked. The value 1 means that they are allowed. */
const blockedMode = 2

/**
 * The database in which a rehearsal of `reverse` claims both clusters. Such a rehearsal syncs all user databases, so its
 * claim must be in a database that is not synced.
 */
export const reverseClaimDatabase = 'mongosync_internal_rehearsal'

export interface ClusterFacts {
  version: string
  topology: 'replica set' | 'sharded cluster'
  /** Number of shards; null for a replica set. */
  shards: number | null
  /** Uncompressed size of the documents in all user databases. */
  dataBytes: number
}

/** One of the two clusters, used with the privileges of the user in the connection string. */
export class RehearsalCluster {
  readonly name: 'cluster0' | 'cluster1'
  readonly uri: string
  readonly client: MongoClient
  /** Major version of the release; 0 before `readFacts`. */
  major = 0
  /** The shards with their hosts (`setName/host,host`); null for a replica set and before `readFacts`. */
  shards: { name: string; host: string }[] | null = null

  constructor(name: 'cluster0' | 'cluster1', uri: string) {
    this.name = name
    this.uri = uri
    this.client = new MongoClient(uri, clientOptions)
  }

  async readFacts(): Promise<ClusterFacts> {
    const admin = this.client.db('admin')
    const [hello, { version }, databases] = await Promise.all([
      admin.command({ hello: 1 }),
      admin.command({ buildInfo: 1 }) as Promise<{ version: string }>,
      this.#databases(),
    ])
    this.major = Number.parseInt(version, 10)
    const isSharded = hello['msg'] === 'isdbgrid'
    if (isSharded) {
      const listed: { _id: string; host: string }[] = (await admin.command({ listShards: 1 }))['shards']
      this.shards = listed.map(({ _id, host }) => ({ name: _id, host }))
    }
    const shards = this.shards?.length ?? null
    const sizes = await Promise.all(
      databases.filter(isUserDatabase).map((name) => this.client.db(name).command({ dbStats: 1 })),
    )
    const dataBytes = sizes.reduce((sum, { dataSize }) => sum + Number(dataSize), 0)
    return { version, topology: isSharded ? 'sharded cluster' : 'replica set', shards, dataBytes }
  }

  /** Returns an identifier of the server process, because two connection strings may lead to the same server. */
  async processId(): Promise<string> {
    return String((await this.client.db('admin').command({ hello: 1 }))['topologyVersion']?.processId)
  }

  /** Returns whether user writes are blocked. Returns null if the server does not report it, as a router does not. */
  async isBlocked(): Promise<boolean | null> {
    const { repl } = await this.client.db('admin').command({ serverStatus: 1, repl: 1, metrics: 0, wiredTiger: 0 })
    const mode: number | undefined = repl?.userWriteBlockMode
    return mode === undefined ? null : mode === blockedMode
  }

  async allowWrites(): Promise<void> {
    await this.client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
  }

  /**
   * Returns the existing databases that prevent a rehearsal: those with its prefix, tandem's metadata databases, and the
   * claim of a rehearsal of `reverse`.
   */
  async occupied(prefix: string): Promise<string[]> {
    const own: readonly string[] = [...metadataDatabases, reverseClaimDatabase]
    return (await this.#databases()).filter((name) => name.startsWith(`${prefix}_`) || own.includes(name))
  }

  /** Returns those of these databases that exist. */
  async existing(names: readonly string[]): Promise<string[]> {
    return (await this.#databases()).filter((name) => names.includes(name))
  }

  /** Returns the user databases that do not belong to the rehearsal with this prefix. */
  async otherDatabases(prefix: string): Promise<string[]> {
    return (await this.#databases()).filter((name) => isUserDatabase(name) && !name.startsWith(`${prefix}_`))
  }

  async drop(names: readonly string[]): Promise<void> {
    for (const name of names) await this.client.db(name).dropDatabase({ writeConcern: { w: 'majority' } })
  }

  async close(): Promise<void> {
    await this.client.close()
  }

  async #databases(): Promise<string[]> {
    const reply: Document = await this.client
      .db('admin')
      .command({ listDatabases: 1, nameOnly: true, authorizedDatabases: false })
    return reply['databases'].map(({ name }: { name: string }) => name)
  }
}
