import type { Document } from 'mongodb'
import { assert } from '../domain/errors.ts'
import { namespace, splitNamespace } from '../domain/namespace.ts'
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

export interface AddressedCommand {
  /** The database to which the command is sent. */
  database: string
  command: Document
}

/**
 * Gives the database and the collections of a command their names on the destination. A command that names no collection,
 * such as listCollections, goes to the database of `onDestination`.
 */
export function renamedCommand(names: NamespaceRemap, database: string, command: Document): AddressedCommand {
  if (names.isIdentity) return { database, command }
  const [name = ''] = Object.keys(command)
  if (name === 'dataSize') {
    // This command names the whole namespace.
    const there = names.namespaceOnDestination(command['dataSize'])
    return { database: splitNamespace(there).database, command: { ...command, dataSize: there } }
  }
  if (database !== 'admin') return ofCollection(names, database, command, name === 'getMore' ? 'collection' : name)
  const fields = namingFields[name]
  if (!fields) return { database, command }
  const renamed = { ...command }
  for (const field of fields) renamed[field] = names.namespaceOnDestination(command[field])
  if (name === 'renameCollection') {
    const [from, to] = [splitNamespace(renamed['renameCollection']), splitNamespace(renamed['to'])]
    // The server would write a copy with another UUID (`NamespaceRemap.separates`).
    assert(from.database === to.database, 'a rename would move a collection to another database of the destination')
  }
  return { database, command: renamed }
}

/** @param field the field that names the collection */
function ofCollection(names: NamespaceRemap, database: string, command: Document, field: string): AddressedCommand {
  const collection = command[field] as unknown
  if (typeof collection !== 'string' || !names.isPlaced(database, collection))
    return { database: names.onDestination(database), command }
  const there = splitNamespace(names.namespaceOnDestination(namespace(database, collection)))
  return { database: there.database, command: { ...command, [field]: there.collection } }
}

/**
 * Gives the collection that a CollectionUUIDMismatch reports its name on the source. If it has a name there that belongs to
 * another database, it is reported as gone, as after a rename into another database.
 * @param database the database to which the command was sent
 */
export function convertActualName(
  names: NamespaceRemap,
  sent: AddressedCommand,
  database: string,
  error: unknown,
): void {
  if (!names.hasCollections || database === 'admin') return
  const response = (error as { errorResponse?: Document }).errorResponse
  const actual = response?.['actualCollection'] as unknown
  if (!response || typeof actual !== 'string') return
  const found = splitNamespace(names.namespaceOnSource(namespace(sent.database, actual)))
  response['actualCollection'] = found.database === database ? found.collection : null
}
