import type { Document } from 'mongodb'
import type { DatabaseEntry } from './catalog.ts'
import {
  argument,
  ask,
  bypassOf,
  type Changes,
  type Command,
  CommandError,
  forward,
  type Handler,
  type Mongos,
  majority,
  succeeded,
  success,
} from './command.ts'
import { versionsOf } from './shard-versions.ts'

/**
 * DDL of collections, indexes and shard keys. The primary shard of a database coordinates most of it (`_shardsvr…`). The command
 * contains the database version, so that the shard rejects it after the database has moved away. A mongos itself sends the
 * other commands to the shards.
 */
export const ddl: Record<string, Handler> = {
  create,
  createIndexes,
  drop,
  dropDatabase,
  dropIndexes: (command, mongos) => coordinated(command, mongos, '_shardsvrDropIndexes'),
  deleteIndexes: (command, mongos) => coordinated(command, mongos, '_shardsvrDropIndexes'),
  collMod: (command, mongos) => coordinated(command, mongos, '_shardsvrCollMod'),
  renameCollection: (command, mongos) => coordinated(command, mongos, '_shardsvrRenameCollection'),
  enableSharding,
  movePrimary,
  shardCollection: (command, mongos) => shardKeyCommand(command, mongos, '_shardsvrCreateCollection', 'shardKey'),
  refineCollectionShardKey: (command, mongos) =>
    shardKeyCommand(command, mongos, '_shardsvrRefineCollectionShardKey', 'newShardKey'),
  reshardCollection,
  setAllowMigrations: (command, mongos) => coordinated(command, mongos, '_shardsvrSetAllowMigrations'),
}

async function create(command: Command, mongos: Mongos): Promise<Buffer> {
  const { primary, version } = await mongos.catalog.ensureDatabase(command.database)
  const add = { ...(version ? { databaseVersion: version } : {}), ...bypassOf(command) }
  return await forward(command, await mongos.catalog.host(primary), { drop: ['txnNumber'], add })
}

/** Builds the indexes on each shard that owns chunks. */
async function createIndexes(command: Command, mongos: Mongos): Promise<Buffer> {
  const { catalog } = mongos
  const database = await catalog.ensureDatabase(command.database)
  const versions = await versionsOf(await catalog.collection(command.namespace), database, mongos)
  const replies = await Promise.all(
    [...versions].map(async ([shard, version]) => {
      const changes = { drop: ['txnNumber'], add: { ...version, ...bypassOf(command) } }
      return [shard, succeeded(await forward(command, await catalog.host(shard), changes))] as const
    }),
  )
  return success({ raw: Object.fromEntries(replies.map(([shard, reply]) => [shard, withoutClock(reply)])) })
}

function withoutClock(reply: Document): Document {
  return Object.fromEntries(Object.entries(reply).filter(([name]) => !name.startsWith('$') && name !== 'operationTime'))
}

async function coordinated(command: Command, mongos: Mongos, name: string, changes: Changes = {}): Promise<Buffer> {
  const { catalog } = mongos
  const names = namesOf(command)
  const database = await catalog.database(names.database)
  if (!database) throw new CommandError(26, 'NamespaceNotFound', `ns not found: ${names.database}`)
  if (database.primary === 'config') return await forward(command, await catalog.configuration())
  return await forward(command, await catalog.host(database.primary), {
    name,
    value: names.collection,
    database: names.database,
    ...changes,
    add: { ...majority, databaseVersion: database.version, ...bypassOf(command), ...changes.add },
  })
}

/** Returns the names in a command. Administrative commands contain the namespace, and others the collection's name. */
function namesOf({ name, target, database }: Command): { database: string; collection: string | undefined } {
  if (name === 'dropDatabase') return { database, collection: undefined }
  const dot = target.indexOf('.')
  const hasFullNamespace = [
    'renameCollection',
    'shardCollection',
    'refineCollectionShardKey',
    'reshardCollection',
    'setAllowMigrations',
  ].includes(name)
  return hasFullNamespace
    ? { database: target.slice(0, dot), collection: target.slice(dot + 1) }
    : { database, collection: target }
}

async function drop(command: Command, mongos: Mongos): Promise<Buffer> {
  const { catalog } = mongos
  const database = await catalog.database(command.database)
  // The coordinating shard would report success for a missing collection.
  const exists =
    database && ((await catalog.collection(command.namespace)) ?? (await isListed(command, mongos, database)))
  if (!exists) throw new CommandError(26, 'NamespaceNotFound', 'ns not found')
  return await coordinated(command, mongos, '_shardsvrDropCollection')
}

async function isListed(command: Command, { catalog }: Mongos, { primary }: DatabaseEntry): Promise<boolean> {
  const list = { listCollections: 1, filter: { name: command.target }, nameOnly: true }
  const { cursor } = await ask(command, await catalog.host(primary), command.database, list)
  return cursor.firstBatch.length > 0
}

async function dropDatabase(command: Command, mongos: Mongos): Promise<Buffer> {
  if (!(await mongos.catalog.database(command.database))) return success({ dropped: command.database })
  return await coordinated(command, mongos, '_shardsvrDropDatabase')
}

async function enableSharding(command: Command, { catalog }: Mongos): Promise<Buffer> {
  await catalog.createDatabase(command.target, argument(command, 'primaryShard') as string | undefined)
  return success()
}

async function movePrimary(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const database = await catalog.database(command.target)
  if (!database) throw new CommandError(26, 'NamespaceNotFound', `the database ${command.target} does not exist`)
  const add = { ...majority, databaseVersion: database.version }
  return await forward(command, await catalog.host(database.primary), { name: '_shardsvrMovePrimary', add })
}

/** Runs a command with a shard key, which has another field name in the internal command. */
async function shardKeyCommand(command: Command, mongos: Mongos, name: string, keyName: string): Promise<Buffer> {
  await mongos.catalog.ensureDatabase(namesOf(command).database)
  const fields = command.fields.map((field) => (field.name === 'key' ? { ...field, name: keyName } : field))
  return await sharded({ ...command, fields }, mongos, name)
}

async function reshardCollection(command: Command, mongos: Mongos): Promise<Buffer> {
  return await sharded(command, mongos, '_shardsvrReshardCollection', { value: command.target, database: 'admin' })
}

async function sharded(command: Command, mongos: Mongos, name: string, changes: Changes = {}): Promise<Buffer> {
  succeeded(await coordinated(command, mongos, name, { drop: ['txnNumber'], ...changes }))
  return success({ collectionsharded: command.target })
}
