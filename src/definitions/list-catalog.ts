import { type IndexSpecification, secondaryIndexes } from '../domain/definition.ts'
import { type ExistingDefinition, existingIndexes } from '../domain/existing-indexes.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { inSlices } from '../domain/in-slices.ts'
import { internalDatabasePatterns, isUserCollection, namespace, splitNamespace } from '../domain/namespace.ts'
import {
  embedded,
  fieldNamed,
  isTruthy,
  type RawFields,
  readFields,
  spans,
  stringOf,
  typedValue,
} from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { codeOf, isTransient } from '../mongo/errors.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { asListed } from './as-listed.ts'
import { isListed, type ListedCollection, listCollections, listDatabases, listIndexesOf } from './listing.ts'
import { readUnevenIndexes } from './shard-indexes.ts'

/** One collection with its secondary indexes, or one view. */
export interface ServerCatalogEntry extends ListedCollection, ExistingDefinition {}

/** All user collections and views of a cluster, by database. */
export type ClusterCatalog = Map<string, ServerCatalogEntry[]>

/**
 * The shards whose indexes are read for a sharded collection.
 *
 * router       those that the router lists, which are the indexes of one shard
 * everyShard   those that every shard has; the others are returned as `uneven`. One more command for each collection
 *              that has chunks on several shards; needs the privilege `indexStats`
 */
export type ShardsRead = 'router' | 'everyShard'

/** Number of parallel commands if databases and collections are listed individually: half of the client's 64 connections. */
const commandsAtOnce = 32
/** Up to this many collections are listed individually, because the whole catalog may contain many thousands of them. */
const fewCollections = 16
const fewDatabases = 16

/**
 * Reads the definitions of the whole cluster. If the server supports `$listCatalog`, one cursor returns them as of one
 * point in time. Otherwise, listCollections and listIndexes run in parallel.
 *
 * `$listCatalog` (6.0 and later) returns the catalog's own documents. The documents of two clusters may differ in their
 * field order, or in the form in which an old release wrote an option, although listIndexes returns the same for both.
 * Definitions that are equal here are also equal in listIndexes. A difference here must be confirmed by listIndexes
 * before it counts. The stage needs the privileges `listDatabases` on the cluster, and `listCollections` and
 * `listIndexes` on all databases, on `system.js` and on all time-series buckets
 * (src/mongo/db/pipeline/document_source_list_catalog.cpp).
 *
 * @param among selects the databases to return from those that exist
 */
export async function listClusterCatalog(
  cluster: Cluster,
  among: (databases: string[]) => Promise<string[]> = async (databases) => databases,
  shards: ShardsRead = 'router',
): Promise<ClusterCatalog> {
  const found = await readCatalog(cluster)
  if (found) {
    const wanted = new Set(await among([...found.keys()]))
    for (const database of found.keys()) if (!wanted.has(database)) found.delete(database)
    return found
  }
  return await listEach(cluster, await among(await listDatabases(cluster)), { shards })
}

/**
 * Returns the current definitions of these collections, by UUID, without dropped ones. For many collections, it reads
 * the whole catalog once.
 */
export async function readDefinitionsOf(
  cluster: Cluster,
  wanted: readonly { database: string; uuid: string }[],
  shards: ShardsRead = 'router',
): Promise<Map<string, ExistingDefinition>> {
  const uuids = new Set(wanted.map(({ uuid }) => uuid))
  const definitions = new Map<string, ExistingDefinition>()
  const add = (listed: ServerCatalogEntry[]): void => {
    for (const { uuid, options, indexes, uneven } of listed) {
      if (uuids.has(uuid)) definitions.set(uuid, { options, indexes, ...(uneven && { uneven }) })
    }
  }
  const catalog = uuids.size > fewCollections ? await readCatalog(cluster) : null
  if (catalog) {
    for (const listed of catalog.values()) add(listed)
    return definitions
  }
  const databases = [...new Set(wanted.map(({ database }) => database))]
  const isWanted = ({ uuid }: ListedCollection): boolean => uuids.has(uuid)
  for (const listed of (await listEach(cluster, databases, { isWanted, shards })).values()) add(listed)
  return definitions
}

/**
 * Returns the current names of the collections in these databases, by UUID. For many databases, it reads the whole
 * catalog once.
 */
export async function readNames(cluster: Cluster, databases: readonly string[]): Promise<Map<string, string>> {
  const names = new Map<string, string>()
  const add = (listed: ListedCollection[]): void => {
    for (const { uuid, name } of listed) names.set(uuid, name)
  }
  const catalog = databases.length > fewDatabases ? await readCatalog(cluster) : null
  if (catalog) for (const database of databases) add(catalog.get(database) ?? [])
  else {
    await inParallel(commandsAtOnce, [...databases], async (database) => add(await listCollections(cluster, database)))
  }
  return names
}

/** Reads the definitions of a database's collections and views with listCollections and listIndexes. */
export async function listDefinitions(
  cluster: Cluster,
  database: string,
  isWanted: (one: ListedCollection) => boolean = () => true,
  shards: ShardsRead = 'router',
): Promise<ServerCatalogEntry[]> {
  return (await listEach(cluster, [database], { isWanted, shards })).get(database) ?? []
}

/** Runs listCollections on each of these databases and listIndexes on each collection. */
async function listEach(
  cluster: Cluster,
  databases: string[],
  { isWanted = () => true, shards }: { isWanted?: (one: ListedCollection) => boolean; shards: ShardsRead },
): Promise<ClusterCatalog> {
  const found = new Map<string, ListedCollection[]>()
  await inParallel(commandsAtOnce, databases, async (database) => {
    found.set(database, (await listCollections(cluster, database)).filter(isWanted))
  })
  const located = [...found].flatMap(([database, listed]) =>
    listed.flatMap(({ uuid, name }) => (uuid !== '' && isUserCollection(name) ? [{ database, uuid, name }] : [])),
  )
  const indexes = await listIndexesOf(cluster, located, commandsAtOnce)
  const uneven = shards === 'everyShard' ? await readUnevenIndexes(cluster, located, commandsAtOnce) : null
  const withIndexes = (one: ListedCollection): ServerCatalogEntry => ({
    ...one,
    ...existingIndexes(indexes.get(one.uuid) ?? [], uneven?.get(one.uuid)),
  })
  return new Map([...found].map(([database, listed]) => [database, listed.map(withIndexes)]))
}

/**
 * Returns the finished secondary indexes of a database's collections, by UUID, with one command. Returns null if
 * `$listCatalog` is not usable. A difference from other indexes must be confirmed by listIndexes (`listClusterCatalog`).
 */
export async function readIndexesAtOnce(
  cluster: Cluster,
  database: string,
): Promise<Map<string, IndexSpecification[]> | null> {
  const catalog = await readCatalog(cluster, database)
  return catalog && new Map((catalog.get(database) ?? []).map(({ uuid, indexes }) => [uuid, indexes]))
}

/**
 * Reads `$listCatalog`. Returns null if the stage is not usable: on a release before 6.0, without the privileges, and
 * through mongos. There, every shard returns its own catalog, including collections of which it no longer has
 * documents.
 * @param only reads only this database
 */
async function readCatalog(cluster: Cluster, only?: string): Promise<ClusterCatalog | null> {
  if (cluster.sharded || cluster.before6) return null
  const { names } = cluster
  const databases =
    only === undefined
      ? { $nin: internalDatabasePatterns }
      : { $in: names.placesOf(only).map((place) => names.onDestination(place)) }
  let rows: Buffer[]
  try {
    rows = await RawCursor.readAll(cluster, 'admin', {
      aggregate: 1,
      pipeline: [{ $listCatalog: {} }, { $match: { db: databases } }],
      cursor: { batchSize: 1_000_000 },
      // Overrides the cluster's default read concern and reads the primary's current state, as listCollections does.
      readConcern: { level: 'local' },
    })
  } catch (error) {
    if (codeOf(error) === undefined || isTransient(error)) throw error
    return null
  }
  const catalog: ClusterCatalog = new Map()
  for (const read of await inSlices(rows, readRow)) {
    // This release of the server uses another row format.
    if (!read) return null
    const { database, collection } = splitNamespace(names.namespaceOnSource(namespace(read.database, read.entry.name)))
    const known = catalog.get(database) ?? []
    if (isListed(collection)) known.push({ ...read.entry, name: collection })
    // A database that has only system collections gets an entry too, because it exists.
    catalog.set(database, known)
  }
  return catalog
}

function readRow(bytes: Buffer): { database: string; entry: ServerCatalogEntry } | null {
  const row = fieldsOf(bytes, ['db', 'name', 'type', 'md', 'viewOn', 'pipeline', 'collation'])
  const database = stringOf(fieldNamed(row, 'db'))
  const name = stringOf(fieldNamed(row, 'name'))
  const type = stringOf(fieldNamed(row, 'type'))
  if (database === undefined || name === undefined || type === undefined) return null
  const metadata = fieldNamed(row, 'md')
  if (!metadata) {
    const options = row.filter((field) => ['viewOn', 'pipeline', 'collation'].includes(field.name))
    return fieldNamed(options, 'viewOn') ? { database, entry: { name, type, uuid: '', options, indexes: [] } } : null
  }
  const fields = fieldsOf(embedded(metadata), ['options', 'indexes'])
  const stored = fieldNamed(fields, 'options')
  const indexes = fieldNamed(fields, 'indexes')
  if (!stored || !indexes) return null
  const options = readFields(embedded(stored))
  const uuid = fieldNamed(options, 'uuid')
  if (!uuid) return null
  const entry = {
    name,
    type,
    uuid: uuid.latin1Slice(6),
    options: options.filter((option) => option.name !== 'uuid'),
    indexes: isUserCollection(name) ? secondaryIndexes(readIndexes(embedded(indexes))) : [],
  }
  return { database, entry }
}

/** Returns only finished indexes: the createIndexes event of an index build arrives when the build ends. */
function readIndexes(array: Buffer): RawFields[] {
  const indexes: RawFields[] = []
  for (const { value } of readFields(array)) {
    const index = fieldsOf(embedded(value), ['spec', 'ready'])
    const specification = fieldNamed(index, 'spec')
    if (!specification || !isTruthy(fieldNamed(index, 'ready'))) continue
    indexes.push(readFields(embedded(specification)).map(asListed))
  }
  return indexes
}

/** Reads only the named fields of a document, because most of a row is not needed. */
function fieldsOf(bytes: Buffer, names: string[]): RawFields {
  const fields: RawFields = []
  for (const span of spans(bytes)) {
    const name = bytes.utf8Slice(span.nameStart, span.nameEnd)
    if (names.includes(name)) fields.push({ name, value: typedValue(bytes, span) })
  }
  return fields
}
