import type { Document } from 'mongodb'
import {
  argument,
  bypassOf,
  type Command,
  decoded,
  errorCode,
  exactArguments,
  forward,
  type Handler,
  hasArgument,
  type Mongos,
  send,
  succeeded,
  success,
} from './command.ts'
import { cursorFrom, cursorIdOf, logLostCursor } from './cursors.ts'
import { decode, decodeExactly, encode, fieldsOf } from './fields.ts'
import { isRefusedMove, updateInTransaction } from './owning-shard.ts'
import { onSingleShard } from './single-shard.ts'

const namespaceNotFound = 26
const transactionFields = ['txnNumber', 'autocommit', 'startTransaction']
/**
 * Maximum number of remembered replies to retryable writes. A driver retries a write immediately, so only the latest
 * matter.
 */
const answeredMax = 5_000

/**
 * Commands that read and write documents. They use the router's own commands; count and distinct, which it lacks, use
 * its aggregate.
 */
export const documentCommands: Record<string, Handler> = {
  find: (command, mongos) => viaRouter(command, mongos, 'clusterFind'),
  aggregate: async (command, mongos) => {
    if (writesResult(command)) await mongos.catalog.ensureDatabase(command.database)
    return await viaRouter(command, mongos, 'clusterAggregate')
  },
  insert: (command, mongos) => write(command, mongos, 'clusterInsert'),
  update: (command, mongos) => write(command, mongos, 'clusterUpdate'),
  delete: (command, mongos) => write(command, mongos, 'clusterDelete'),
  count,
  distinct,
  killCursors,
}

/**
 * Forwards a command to the router. The router is a replica set member and would forward a write without a write concern
 * as w: 1, so this adds the default, majority.
 */
function viaRouter(command: Command, mongos: Mongos, name: string): Promise<Buffer> {
  const isWrite = ['insert', 'update', 'delete'].includes(command.name)
  const concern = isWrite && !hasArgument(command, 'writeConcern') ? { writeConcern: { w: 'majority' } } : {}
  return forward(command, mongos.router, { name, drop: transactionFields, add: { ...concern, ...bypassOf(command) } })
}

/**
 * Executes a write. `clusterInsert` with a transaction number aborts the router process. Therefore a retryable write to an
 * unsharded collection goes to the shard itself. A retryable write to a sharded collection is forwarded without its number,
 * and a retry is answered from memory.
 */
async function write(command: Command, mongos: Mongos, name: string): Promise<Buffer> {
  const { database, namespace } = command
  if (!hasArgument(command, 'txnNumber')) {
    await mongos.catalog.ensureDatabase(database)
    return await viaRouter(command, mongos, name)
  }
  const isServerDatabase = database === 'config' || database === 'admin'
  if (!isServerDatabase && !(await mongos.catalog.collection(namespace))) return await onSingleShard(command, mongos)

  const key = JSON.stringify([argument(command, 'lsid'), String(argument(command, 'txnNumber'))])
  const before = mongos.answered.get(key)
  if (before) return before
  let reply = await viaRouter(command, mongos, name)
  if (isRefusedMove(command, reply)) reply = await updateInTransaction(command, mongos)
  if (errorCode(reply) === undefined) {
    mongos.answered.set(key, reply)
    const [oldest] = mongos.answered.keys()
    if (mongos.answered.size > answeredMax && oldest !== undefined) mongos.answered.delete(oldest)
  }
  return reply
}

function writesResult(command: Command): boolean {
  const pipeline = argument(command, 'pipeline') as Document[] | undefined
  const last = pipeline?.at(-1)
  return last !== undefined && ('$out' in last || '$merge' in last)
}

export const isTailable = (command: Command): boolean => argument(command, 'tailable') === true

/**
 * Sends a tailable find to the shard, because a tailable cursor that awaits data aborts the router process. A capped
 * collection is on one shard.
 */
export async function tailableFind(command: Command, { catalog, cursorHosts }: Mongos): Promise<Buffer> {
  const { primary } = await catalog.ensureDatabase(command.database)
  return await cursorFrom(command, await catalog.host(primary), cursorHosts)
}

export async function routeGetMore(command: Command, mongos: Mongos): Promise<Buffer> {
  const cursor = cursorIdOf(command)
  const host = mongos.cursorHosts.get(cursor)
  const reply = host ? await forward(command, host) : await viaRouter(command, mongos, 'clusterGetMore')
  logLostCursor('getMore', cursor, reply)
  return reply
}

async function killCursors(command: Command, mongos: Mongos): Promise<Buffer> {
  const { cursors, lsid } = exactArguments(command, ['cursors', 'lsid'])
  for (const id of cursors as Document[]) {
    const key = String(id)
    const stream = mongos.streams.get(key)
    const host = mongos.cursorHosts.get(key)
    if (stream) {
      stream.close()
    } else if (host) {
      mongos.cursorHosts.delete(key)
      await command.client.links.ask(host, command.database, { killCursors: command.target, cursors: [id], lsid })
    } else {
      // 6.0 has no clusterKillCursors, but a getMore that fails destroys its cursor, and this one fails because 1 ms is
      // too short.
      const failing = { clusterGetMore: id, collection: command.target, batchSize: 1, maxTimeMS: 1, lsid }
      const reply = await command.client.links.send(mongos.router, encode({ ...failing, $db: command.database }))
      logLostCursor('killCursors', key, reply)
    }
  }
  return success({ cursorsKilled: cursors, cursorsNotFound: [], cursorsAlive: [], cursorsUnknown: [] })
}

const readOptions = [
  '$db',
  'lsid',
  '$clusterTime',
  '$readPreference',
  'readConcern',
  'maxTimeMS',
  'comment',
  'collation',
]

async function count(command: Command, mongos: Mongos): Promise<Buffer> {
  const { query, skip, limit } = decoded(command)
  const countsAll = Object.keys(query ?? {}).length === 0 && !skip && !limit
  if (countsAll) {
    const fromMetadata = [{ $collStats: { count: {} } }, { $group: { _id: null, n: { $sum: '$count' } } }]
    const reply = await aggregate(command, mongos, fromMetadata)
    if (errorCode(reply) === undefined) return success({ n: countIn(reply) })
    if (errorCode(reply) === namespaceNotFound) return success({ n: 0 })
    // A view has no metadata, so its documents are counted.
  }
  const { query: match = {} } = exactArguments(command, ['query'])
  const reply = await aggregate(command, mongos, [
    { $match: match },
    ...(skip ? [{ $skip: skip }] : []),
    ...(limit ? [{ $limit: Math.abs(limit) }] : []),
    { $count: 'n' },
  ])
  if (errorCode(reply) === namespaceNotFound) return success({ n: 0 })
  return errorCode(reply) === undefined ? success({ n: countIn(reply) }) : reply
}

function countIn(reply: Buffer): number {
  return decode(reply)['cursor'].firstBatch[0]?.n ?? 0
}

async function distinct(command: Command, mongos: Mongos): Promise<Buffer> {
  const path = String(argument(command, 'key'))
  const { query = {} } = exactArguments(command, ['query'])
  const names = path.split('.')
  const unwinds = names.map((_, index) => ({
    $unwind: { path: `$${names.slice(0, index + 1).join('.')}`, preserveNullAndEmptyArrays: true },
  }))
  const reply = await aggregate(command, mongos, [
    { $match: query },
    ...unwinds,
    { $match: { [path]: { $exists: true } } },
    { $group: { _id: `$${path}` } },
    { $sort: { _id: 1 } },
  ])
  succeeded(reply)
  return success({ values: decodeExactly(reply)['cursor'].firstBatch.map(({ _id }: Document) => _id) })
}

function aggregate(command: Command, mongos: Mongos, pipeline: Document[]): Promise<Buffer> {
  const options = command.fields.filter(({ name }) => readOptions.includes(name) || name === 'hint')
  const aggregation = fieldsOf({ clusterAggregate: command.target, pipeline, cursor: { batchSize: 1_000_000 } })
  return send(command, mongos.router, [...aggregation, ...options])
}
