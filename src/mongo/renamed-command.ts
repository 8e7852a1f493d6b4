import type { Document } from 'mongodb'
import type { NamespaceRemap } from '../domain/namespace-remap.ts'

/**
 * The commands on the database `admin` whose fields contain a whole namespace or the name of a database, with these
 * fields. tandem sends them to a destination. Any other command contains at most the name of a collection, and is sent
 * to the database of that collection.
 */
const namingFields: Readonly<Record<string, readonly string[]>> = {
  renameCollection: ['renameCollection', 'to'],
  shardCollection: ['shardCollection'],
  refineCollectionShardKey: ['refineCollectionShardKey'],
  split: ['split'],
  moveChunk: ['moveChunk'],
  updateZoneKeyRange: ['updateZoneKeyRange'],
  setAllowMigrations: ['setAllowMigrations'],
  enableSharding: ['enableSharding'],
}

/**
 * Replaces each source namespace in an administrative command with the namespace on the destination.
 * @param database the database to which the command is sent; only commands on `admin` are changed
 */
export function renamedCommand(names: NamespaceRemap, database: string, command: Document): Document {
  if (names.isIdentity || database !== 'admin') return command
  const [name = ''] = Object.keys(command)
  const fields = namingFields[name]
  if (!fields) return command
  const renamed = { ...command }
  for (const field of fields) renamed[field] = names.namespaceOnDestination(command[field])
  return renamed
}
