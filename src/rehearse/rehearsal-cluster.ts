import { type Document, MongoClient } from 'mongodb'
import { isUserDatabase, metadataDatabases } from '../domain/namespace.ts'

const selectionTimeoutMS = 10_000
/**
 * Time limit of a command, far longer than any command of a rehearsal takes. Without this limit, Ctrl-C would wait for a
 * cluster without a majority.
 */
const answerTimeoutMS = 120_000

/** The value of `userWriteBlockMode` in serverStatus while user writes are blocked. The value 1 means that they are allowed. */
const blockedMode = 2

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

  constructor(name: 'cluster0' | 'cluster1', uri: string) {
    this.name = name
    this.uri = uri
    this.client = new MongoClient(uri, {
      appName: 'tandem rehearse',
      serverSelectionTimeoutMS: selectionTimeoutMS,
      socketTimeoutMS: answerTimeoutMS,
      readPreference: 'primary',
    })
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
    const shards = isSharded ? (await admin.command({ listShards: 1 }))['shards'].length : null
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

  /** Returns true if user writes are blocked. Returns false if the server does not report it, as a router does not. */
  async isBlocked(): Promise<boolean> {
    const { repl } = await this.client.db('admin').command({ serverStatus: 1, repl: 1, metrics: 0, wiredTiger: 0 })
    return repl?.userWriteBlockMode === blockedMode
  }

  /** Returns the existing databases that prevent a rehearsal: those with its prefix, and tandem's metadata databases. */
  async occupied(prefix: string): Promise<string[]> {
    const own: readonly string[] = metadataDatabases
    return (await this.#databases()).filter((name) => name.startsWith(`${prefix}_`) || own.includes(name))
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
