import { setTimeout as delay } from 'node:timers/promises'
import { type Document, Long, type ObjectId, type Timestamp, type UUID } from 'mongodb'
import { CommandError, majority } from './command.ts'
import { encode, exactValue, fieldNamed, readFields } from './fields.ts'
import type { Links } from './link.ts'

/** As long as an election may take on a busy machine. */
const primaryTimeoutMs = 30_000
/** Between a stepdown and this time, commands may go to the old primary, which answers that it is none. */
const primaryCachedMs = 1_000

export interface DatabaseEntry {
  _id: string
  /** The shard of everything in it that is not sharded; `config` for config and admin. */
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

/** What the config servers know: shards, databases, sharded collections and their chunks. Asked each time, never cached. */
export class Catalog {
  readonly configurationName: string
  #configurationHosts: string[]
  #router: string
  #links: Links
  #primaries = new Map<string, { host: string; until: number }>()

  /** `configuration` is a replica set's connection string, `name/host,host`. */
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

  /** Host of the primary of a shard. */
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

  /** The database's entry, made if there is none, with a primary shard chosen by the config server. */
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

  /** The entry of a sharded collection; also of a sharded time-series collection, which is its buckets'. */
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

  /** The shards that own chunks, each with the highest version of its chunks, which is its shard version. */
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

  /** The chunk that holds a shard key value. The server compares: BSON's order is not repeated here. */
  async chunkOf({ uuid }: CollectionEntry, key: Document): Promise<ChunkEntry> {
    const upToKey = [{ $match: { min: { $lte: key } } }, { $sort: { min: -1 } }, { $limit: 1 }]
    return (await this.#chunks(uuid, upToKey))[0] as ChunkEntry
  }

  /** The shard key value of a document (decoded exactly). The server hashes. */
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

  /** Shard keys must come back as they are, a 64-bit 5 not as 32-bit: they are sent on, and compared byte by byte. */
  async #read(command: Document): Promise<Document[]> {
    const body = encode({ ...command, readConcern: { level: 'majority' }, $db: 'config' })
    const reply = await this.#links.send(await this.configuration(), body)
    const cursor = exactValue(fieldNamed(readFields(reply), 'cursor')) as Document | undefined
    if (!cursor) throw new CommandError(6, 'HostUnreachable', 'the config server did not answer with a cursor')
    return cursor['firstBatch']
  }

  async #primary(name: string, hosts: string[]): Promise<string> {
    const known = this.#primaries.get(name)
    if (known && Date.now() < known.until) return known.host
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
