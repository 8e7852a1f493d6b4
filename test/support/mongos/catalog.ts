import { setTimeout as delay } from 'node:timers/promises'
import { type Document, Long, type ObjectId, type Timestamp, type UUID } from 'mongodb'
import { CommandError, majority } from './command.ts'
import { encode, exactValue, fieldNamed, readFields } from './fields.ts'
import type { Links } from './link.ts'

/** The longest time of an election on a busy machine. */
const primaryTimeoutMs = 30_000
/** For this time after a stepdown, commands may still go to the old primary, which rejects them as not writable. */
const primaryCachedMs = 1_000

export interface DatabaseEntry {
  _id: string
  /** The shard of the database's unsharded collections; `config` for config and admin. */
  primary: string
  version?: Document
}

export interface CollectionEntry {
  _id: string
  uuid: UUID
  key: Document
  lastmodEpoch: ObjectId
  timestamp: Timestamp
}

export interface ChunkEntry {
  shard: string
  min: Document
  max: Document
}

/**
 * The catalog of the config servers: shards, databases, sharded collections and their chunks. It is read for each
 * command and not cached.
 */
export class Catalog {
  readonly configurationName: string
  #configurationHosts: string[]
  #router: string
  #links: Links
  #primaries = new Map<string, { host: string; until: number }>()

  /** @param configuration connection string of the config servers' replica set, `name/host,host` */
  constructor(configuration: string, router: string, links: Links) {
    const [name = '', hosts = ''] = configuration.split('/')
    this.configurationName = name
    this.#configurationHosts = hosts.split(',')
    this.#router = router
    this.#links = links
  }

  configuration(): Promise<string> {
    return this.#primary(this.configurationName, this.#configurationHosts)
  }

  forgetPrimaries(): void {
    this.#primaries.clear()
  }

  async shards(): Promise<{ _id: string; host: string }[]> {
    return (await this.#find('shards', {})) as { _id: string; host: string }[]
  }

  async shardNames(): Promise<string[]> {
    return (await this.shards()).map(({ _id }) => _id)
  }

  /** Returns the host of a shard's primary. */
  async host(shard: string): Promise<string> {
    if (shard === 'config') return this.configuration()
    const [entry] = await this.#find('shards', { _id: shard })
    if (!entry) throw new CommandError(70, 'ShardNotFound', `Shard ${shard} not found`)
    const [name, hosts] = entry['host'].split('/') as [string, string]
    return this.#primary(name, hosts.split(','))
  }

  async database(name: string): Promise<DatabaseEntry | undefined> {
    if (name === 'config' || name === 'admin') return { _id: name, primary: 'config' }
    return (await this.#find('databases', { _id: name }))[0] as DatabaseEntry | undefined
  }

  /** Returns the database's entry. Creates it if it does not exist; the config server then chooses the primary shard. */
  async ensureDatabase(name: string): Promise<DatabaseEntry> {
    const existing = await this.database(name)
    if (existing) return existing
    await this.createDatabase(name)
    return (await this.database(name)) as DatabaseEntry
  }

  async createDatabase(name: string, primaryShardId?: string): Promise<void> {
    const create = { _configsvrCreateDatabase: name, primaryShardId, ...majority }
    const reply = await this.#links.ask(await this.configuration(), 'admin', create)
    if (!reply['ok']) throw new CommandError(reply['code'], reply['codeName'], reply['errmsg'])
  }

  /**
   * Returns the entry of a sharded collection. For a sharded time-series collection, it is the entry of its buckets
   * collection.
   */
  async collection(namespace: string): Promise<CollectionEntry | undefined> {
    const dot = namespace.indexOf('.')
    const buckets = `${namespace.slice(0, dot)}.system.buckets.${namespace.slice(dot + 1)}`
    const [entry] = await this.#find('collections', { _id: { $in: [namespace, buckets] } })
    return entry as CollectionEntry | undefined
  }

  async shardedCollection(namespace: string): Promise<CollectionEntry> {
    const entry = await this.collection(namespace)
    if (!entry) throw new CommandError(118, 'NamespaceNotSharded', `namespace ${namespace} is not sharded`)
    return entry
  }

  async chunkCount({ uuid }: CollectionEntry): Promise<number> {
    return (await this.#chunks(uuid, [{ $count: 'chunks' }]))[0]?.['chunks'] ?? 0
  }

  /** Returns the shards that own chunks, each with the highest version of its chunks, which is its shard version. */
  async owners({ uuid }: CollectionEntry): Promise<{ shard: string; version: Timestamp }[]> {
    const byShard = { $group: { _id: '$shard', version: { $max: '$lastmod' } } }
    const owners = await this.#chunks(uuid, [byShard, { $sort: { _id: 1 } }])
    return owners.map(({ _id, version }) => ({ shard: _id, version }))
  }

  async firstChunk({ uuid }: CollectionEntry): Promise<ChunkEntry> {
    return (await this.#chunks(uuid, [{ $sort: { min: 1 } }, { $limit: 1 }]))[0] as ChunkEntry
  }

  async chunkStartingAt({ uuid }: CollectionEntry, min: Document): Promise<ChunkEntry | undefined> {
    return (await this.#chunks(uuid, [{ $match: { min } }]))[0] as ChunkEntry | undefined
  }

  /**
   * Returns the chunk that contains a shard key value. The server compares the values, so this code needs no BSON
   * ordering.
   */
  async chunkOf({ uuid }: CollectionEntry, key: Document): Promise<ChunkEntry> {
    const upToKey = [{ $match: { min: { $lte: key } } }, { $sort: { min: -1 } }, { $limit: 1 }]
    return (await this.#chunks(uuid, upToKey))[0] as ChunkEntry
  }

  /** Returns the shard key value of a document (decoded exactly). The server computes hashes. */
  async keyOf({ key }: CollectionEntry, document: Document): Promise<Document> {
    const result: Document = {}
    for (const [path, kind] of Object.entries(key)) {
      const value = valueAt(document, path) ?? null
      result[path] = kind === 'hashed' ? await this.#hash(value) : value
    }
    return result
  }

  async #hash(value: unknown): Promise<Long> {
    const pipeline = [
      { $documents: [{ value: { $literal: value } }] },
      { $project: { hash: { $toHashedIndexKey: '$value' } } },
    ]
    const reply = await this.#links.ask(this.#router, 'admin', { aggregate: 1, pipeline, cursor: {} })
    return Long.fromValue(reply['cursor'].firstBatch[0].hash)
  }

  #chunks(uuid: UUID, stages: Document[]): Promise<Document[]> {
    return this.#read({
      aggregate: 'chunks',
      pipeline: [{ $match: { uuid } }, ...stages],
      cursor: { batchSize: 100_000 },
    })
  }

  #find(collection: string, filter: Document): Promise<Document[]> {
    return this.#read({ find: collection, filter, singleBatch: true, batchSize: 100_000 })
  }

  /**
   * Reads documents with their exact BSON types (a 64-bit 5 does not become 32-bit), because shard keys are sent to
   * servers and compared byte by byte.
   */
  async #read(command: Document): Promise<Document[]> {
    const body = encode({ ...command, readConcern: { level: 'majority' }, $db: 'config' })
    const reply = await this.#links.send(await this.configuration(), body)
    const cursor = exactValue(fieldNamed(readFields(reply), 'cursor')) as Document | undefined
    if (!cursor) throw new CommandError(6, 'HostUnreachable', 'the config server did not return a cursor')
    return cursor['firstBatch']
  }

  async #primary(name: string, hosts: string[]): Promise<string> {
    const cached = this.#primaries.get(name)
    if (cached && Date.now() < cached.until) return cached.host
    const deadline = Date.now() + primaryTimeoutMs
    while (Date.now() < deadline) {
      for (const candidate of hosts) {
        const hello = await this.#links.ask(candidate, 'admin', { hello: 1 }).catch(() => null)
        const host = hello?.['isWritablePrimary'] ? candidate : hello?.['primary']
        if (!host) continue
        this.#primaries.set(name, { host, until: Date.now() + primaryCachedMs })
        return host
      }
      await delay(100)
    }
    throw new CommandError(133, 'FailedToSatisfyReadPreference', `no primary in ${name} after ${primaryTimeoutMs} ms`)
  }
}

function valueAt(document: Document, path: string): unknown {
  return path.split('.').reduce<unknown>((value, name) => (value as Document | null | undefined)?.[name], document)
}
