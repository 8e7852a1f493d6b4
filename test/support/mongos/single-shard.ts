import type { Document } from 'mongodb'
import type { CollectionEntry } from './catalog.ts'
import {
  bypassOf,
  type Command,
  CommandError,
  changedFields,
  errorCode,
  exactArguments,
  type Mongos,
  send,
} from './command.ts'
import { decode } from './fields.ts'
import { versionsOf } from './shard-versions.ts'

/**
 * Like a mongos, the stand-in sends a command for a single shard with the versions of its routing information. If chunks or the
 * database have moved, the shard rejects the command, and the stand-in reads the catalog again and retries. A retryable write
 * keeps its transaction number, so the shard itself detects a retry.
 */

const staleCodes = [249, 63, 13388]
const attemptsMax = 10

export async function onSingleShard(command: Command, mongos: Mongos): Promise<Buffer> {
  const { catalog } = mongos
  for (let attempt = 1; ; attempt++) {
    const database = await catalog.ensureDatabase(command.database)
    const collection = await catalog.collection(command.namespace)
    const versions = await versionsOf(collection, database, mongos)
    const shard = collection ? await shardOfQuery(command, mongos, collection) : database.primary
    const fields = changedFields(command, { add: { ...versions.get(shard), ...bypassOf(command) } })
    const reply = await send(command, await catalog.host(shard), fields, command.sequences)
    if (!isStale(reply) || attempt === attemptsMax) return reply
  }
}

async function shardOfQuery(command: Command, { catalog }: Mongos, collection: CollectionEntry): Promise<string> {
  const { query = {} } = exactArguments(command, ['query'])
  if (!Object.keys(collection.key).every((path) => isPlainValue(query[path]))) {
    // A mongos of this version returns the same error.
    throw new CommandError(61, 'ShardKeyNotFound', 'Query for sharded findAndModify must contain the shard key')
  }
  return (await catalog.chunkOf(collection, await catalog.keyOf(collection, query))).shard
}

/** Returns whether the value is an equality match and not an object of query operators. */
function isPlainValue(value: unknown): boolean {
  if (value === undefined) return false
  return value === null || typeof value !== 'object' || '_bsontype' in value || value instanceof Date
}

function isStale(reply: Buffer): boolean {
  const code = errorCode(reply)
  if (code !== undefined) return staleCodes.includes(code)
  return (decode(reply)['writeErrors'] ?? []).some((error: Document) => staleCodes.includes(error['code']))
}
