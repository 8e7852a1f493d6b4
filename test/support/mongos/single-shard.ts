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
 * Commands for a single shard that are sent to it with the versions that its routing information must have, as a mongos
 * does it. The shard refuses when chunks or the database have moved; they are then looked up again. The transaction number
 * of a retryable write stays, so the shard itself knows a repetition.
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
    // So does a mongos of this version.
    throw new CommandError(61, 'ShardKeyNotFound', 'Query for sharded findAndModify must contain the shard key')
  }
  return (await catalog.chunkOf(collection, await catalog.keyOf(collection, query))).shard
}

/** Not an object of query operators. */
function isPlainValue(value: unknown): boolean {
  if (value === undefined) return false
  return value === null || typeof value !== 'object' || '_bsontype' in value || value instanceof Date
}

function isStale(reply: Buffer): boolean {
  const code = errorCode(reply)
  if (code !== undefined) return staleCodes.includes(code)
  return (decode(reply)['writeErrors'] ?? []).some((error: Document) => staleCodes.includes(error['code']))
}
