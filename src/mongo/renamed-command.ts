import type { Document } from 'mongodb'
import type { NamespaceRemap } from '../domain/namespace-remap.ts'

/**
 * The commands of the database `admin` that tandem sends to a destination and that name namespaces or databases in
 * these fields. All other commands name the collection alone, in the database to which they are sent.
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

/** Gives the namespaces that an administrative command names their names on the destination. */
export function renamedCommand(names: NamespaceRemap, database: string, command: Document): Document {
  if (names.isIdentity || database !== 'admin') return command
  const [name = ''] = Object.keys(command)
  const fields = namingFields[name]
  if (!fields) return command
  const renamed = { ...command }
  for (const field of fields) renamed[field] = names.namespaceOnDestination(command[field])
  return renamed
}
