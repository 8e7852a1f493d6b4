import { type Document, Long } from 'mongodb'
import { ask, type Command, CommandError, decoded, forward, type Handler, type Mongos, success } from './command.ts'
import { cursorFrom } from './cursors.ts'
import { decode } from './fields.ts'

/**
 * Commands that list databases, collections and indexes or return their statistics, from one shard or summed over
 * shards.
 */
export const listings: Record<string, Handler> = {
  listDatabases,
  listCollections,
  listIndexes,
  dbStats,
  dbstats: dbStats,
  collStats,
  collstats: collStats,
}

interface DatabaseListing {
  name: string
  sizeOnDisk: number
  empty: boolean
  shards: Record<string, number>
}

async function listDatabases(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const { filter, nameOnly = false } = decoded(command)
  const found = new Map<string, DatabaseListing>()
  for (const shard of [...(await catalog.shardNames()), 'config']) {
    const listed = await ask(command, await catalog.host(shard), 'admin', { listDatabases: 1, filter, nameOnly })
    for (const { name, sizeOnDisk = 0, empty } of listed['databases']) {
      // Each server has its own `local`, `admin` and `config`. The cluster's `admin` and `config` are those of the
      // config server.
      const isServerDatabase = name === 'config' || name === 'admin'
      if (name === 'local' || isServerDatabase !== (shard === 'config')) continue
      const entry: DatabaseListing = found.get(name) ?? { name, sizeOnDisk: 0, empty, shards: {} }
      entry.sizeOnDisk += Number(sizeOnDisk)
      entry.shards[shard] = Number(sizeOnDisk)
      found.set(name, entry)
    }
  }
  if (nameOnly) return success({ databases: [...found.keys()].map((name) => ({ name })) })
  const databases = [...found.values()]
  const totalSize = databases.reduce((sum, { sizeOnDisk }) => sum + sizeOnDisk, 0)
  return success({ databases, totalSize, totalSizeMb: Math.floor(totalSize / 1024 / 1024) })
}

async function listCollections(command: Command, { catalog, cursorHosts }: Mongos): Promise<Buffer> {
  const database = await catalog.database(command.database)
  if (database) return await cursorFrom(command, await catalog.host(database.primary), cursorHosts)
  const ns = `${command.database}.$cmd.listCollections`
  return success({ cursor: { id: Long.ZERO, ns, firstBatch: [] } })
}

async function listIndexes(command: Command, { catalog, cursorHosts }: Mongos): Promise<Buffer> {
  const database = await catalog.database(command.database)
  if (!database) throw new CommandError(26, 'NamespaceNotFound', `ns does not exist: ${command.namespace}`)
  const collection = await catalog.collection(command.namespace)
  const shard = collection ? (await catalog.firstChunk(collection)).shard : database.primary
  return await cursorFrom(command, await catalog.host(shard), cursorHosts)
}

async function dbStats(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const replies = await askShards(command, await catalog.shardNames(), catalog.host.bind(catalog))
  const sums: Record<string, number> = {}
  for (const reply of Object.values(replies)) {
    for (const [name, value] of Object.entries(reply)) {
      if (typeof value === 'number' && name !== 'ok') sums[name] = (sums[name] ?? 0) + value
    }
  }
  return success({ raw: replies, db: command.database, ...sums })
}

const summedStats = ['count', 'size', 'storageSize', 'totalIndexSize', 'totalSize']

async function collStats(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const database = await catalog.ensureDatabase(command.database)
  const collection = await catalog.collection(command.namespace)
  const owners = collection ? (await catalog.owners(collection)).map(({ shard }) => shard) : [database.primary]
  const replies = await askShards(command, owners, catalog.host.bind(catalog))
  const all = Object.values(replies)
  const sums = Object.fromEntries(
    summedStats.map((name) => [name, all.reduce((sum, reply) => sum + Number(reply[name] ?? 0), 0)]),
  )
  return success({
    sharded: collection !== undefined,
    ns: command.namespace,
    capped: all[0]?.['capped'] ?? false,
    ...sums,
    avgObjSize: sums['count'] ? (sums['size'] ?? 0) / sums['count'] : 0,
    nindexes: Math.max(...all.map((reply) => reply['nindexes'] ?? 0)),
    nchunks: collection ? await catalog.chunkCount(collection) : 1,
    shards: replies,
  })
}

async function askShards(
  command: Command,
  shards: string[],
  hostOf: (shard: string) => Promise<string>,
): Promise<Record<string, Document>> {
  const replies: Record<string, Document> = {}
  for (const shard of shards) {
    const reply = decode(await forward(command, await hostOf(shard)))
    if (!reply['ok']) throw new CommandError(reply['code'], reply['codeName'], reply['errmsg'])
    replies[shard] = reply
  }
  return replies
}
