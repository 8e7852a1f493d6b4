import type { Document } from 'mongodb'
import type { ChunkEntry, CollectionEntry } from './catalog.ts'
import {
  ask,
  type Command,
  CommandError,
  exactArguments,
  type Handler,
  type Mongos,
  majority,
  send,
} from './command.ts'
import { fieldsOf } from './fields.ts'

/**
 * Commands that split and move chunks. Keys keep their exact types, because the server compares a chunk's bounds with
 * them.
 */
export const chunkCommands: Record<string, Handler> = { split, moveChunk, moveRange: moveChunk }

async function split(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const { middle, find, bounds } = exactArguments(command, ['middle', 'find', 'bounds'])
  const collection = await catalog.shardedCollection(command.target)
  const chunk = bounds
    ? await catalog.chunkStartingAt(collection, bounds[0])
    : await catalog.chunkOf(collection, middle ?? (await catalog.keyOf(collection, find ?? {})))
  if (!chunk) throw new CommandError(70, 'ShardNotFound', 'there is no chunk with the given bounds')
  const host = await catalog.host(chunk.shard)
  const splitKeys = middle ? [middle] : await medianOf(command, host, collection, chunk)
  if (splitKeys.length === 0)
    throw new CommandError(20, 'IllegalOperation', 'the chunk cannot be split because it has no median')
  const splitChunk = {
    splitChunk: command.target,
    from: chunk.shard,
    keyPattern: collection.key,
    epoch: collection.lastmodEpoch,
    timestamp: collection.timestamp,
    min: chunk.min,
    max: chunk.max,
    splitKeys,
  }
  return await send(command, host, fieldsOf({ ...splitChunk, $db: 'admin' }))
}

async function medianOf(
  command: Command,
  host: string,
  { key }: CollectionEntry,
  { min, max }: ChunkEntry,
): Promise<Document[]> {
  const splitVector = { splitVector: command.target, keyPattern: key, min, max, force: true }
  return (await ask(command, host, 'admin', splitVector))['splitKeys']
}

async function moveChunk(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const names = ['find', 'bounds', 'min', 'max', 'to', 'toShard', '_waitForDelete', 'waitForDelete', 'forceJumbo']
  const options = exactArguments(command, names)
  const { find, bounds } = options
  let { min, max } = options
  if (bounds) {
    ;[min, max] = bounds
  } else if (find) {
    const collection = await catalog.shardedCollection(command.target)
    const chunk = await catalog.chunkOf(collection, await catalog.keyOf(collection, find))
    ;({ min, max } = chunk)
  }
  const moveRange = {
    _configsvrMoveRange: command.target,
    toShard: options['to'] ?? options['toShard'],
    min,
    max,
    waitForDelete: options['_waitForDelete'] ?? options['waitForDelete'],
    forceJumbo: options['forceJumbo'] ? 1 : undefined,
    ...majority,
  }
  return await send(command, await catalog.configuration(), fieldsOf({ ...moveRange, $db: 'admin' }))
}
