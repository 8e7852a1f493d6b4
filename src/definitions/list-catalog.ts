import { type CollectionDefinition, secondaryIndexes } from '../domain/definition.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { internalDatabaseNames, isUserCollection } from '../domain/namespace.ts'
import {
  embedded,
  fieldNamed,
  isTruthy,
  numberOf,
  type RawFields,
  readFields,
  spans,
  stringOf,
  typedBoolean,
  typedDouble,
  typedInt32,
  typedValue,
} from '../domain/raw-bson.ts'
import { type Cluster, RawCursor } from '../mongo/cluster.ts'
import { codeOf, isTransient } from '../mongo/errors.ts'
import { isListed, type ListedCollection, listCollections, listDatabases, listIndexesOf } from './listing.ts'

/** One collection with its secondary indexes, or one view without. */
export interface CatalogEntry extends ListedCollection, CollectionDefinition {}

/** All user collections and views of a cluster, by database. */
export type ClusterCatalog = Map<string, CatalogEntry[]>

/** Where each database and collection is asked for by itself; half of the connections that everything shares. */
const commandsAtOnce = 32
/** So few collections are asked for one by one: a pass over the cluster may have many thousands. */
const fewCollections = 16
const fewDatabases = 16

/**
 * Reads the definitions of the whole cluster: by `$listCatalog` in one cursor where the server has it, which shows one moment,
 * else by listCollections and listIndexes, in parallel.
 *
 * `$listCatalog` (6.0 and later) gives the catalog's own documents, so a difference in how an old release wrote an option, or
 * the order of fields, may show that listIndexes does not. Equal definitions are equal by either way; a difference seen
 * here is to be confirmed by listIndexes before it counts. The stage needs `listDatabases` on the cluster, and `listCollections`
 * and `listIndexes` on all databases, on `system.js` and on all time-series buckets
 * (src/mongo/db/pipeline/document_source_list_catalog.cpp).
 *
 * @param among which databases are of interest, of those that exist
 */
export async function listClusterCatalog(
  cluster: Cluster,
  among: (databases: string[]) => Promise<string[]> = async (databases) => databases,
): Promise<ClusterCatalog> {
  const found = await readCatalog(cluster)
  if (found) {
    const wanted = new Set(await among([...found.keys()]))
    for (const database of found.keys()) if (!wanted.has(database)) found.delete(database)
    return found
  }
  return await listEach(cluster, await among(await listDatabases(cluster)))
}

/**
 * The definitions of these collections as they are now, by UUID; those that are gone are left out. By one pass over the cluster
 * where they are many.
 */
export async function readDefinitionsOf(
  cluster: Cluster,
  wanted: readonly { database: string; uuid: string }[],
): Promise<Map<string, CollectionDefinition>> {
  const uuids = new Set(wanted.map(({ uuid }) => uuid))
  const definitions = new Map<string, CollectionDefinition>()
  const add = (listed: CatalogEntry[]): void => {
    for (const { uuid, options, indexes } of listed) if (uuids.has(uuid)) definitions.set(uuid, { options, indexes })
  }
  const catalog = uuids.size > fewCollections ? await readCatalog(cluster) : null
  if (catalog) {
    for (const listed of catalog.values()) add(listed)
    return definitions
  }
  const databases = [...new Set(wanted.map(({ database }) => database))]
  for (const listed of (await listEach(cluster, databases, ({ uuid }) => uuids.has(uuid))).values()) add(listed)
  return definitions
}

/** The present name of each collection of these databases, by UUID. By one pass over the cluster where they are many. */
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

/** The definitions of a database's collections and views, by listCollections and listIndexes. */
export async function listDefinitions(
  cluster: Cluster,
  database: string,
  isWanted: (one: ListedCollection) => boolean = () => true,
): Promise<CatalogEntry[]> {
  return (await listEach(cluster, [database], isWanted)).get(database) ?? []
}

/** By listCollections of each of these databases and listIndexes of each collection. */
async function listEach(
  cluster: Cluster,
  databases: string[],
  isWanted: (one: ListedCollection) => boolean = () => true,
): Promise<ClusterCatalog> {
  const found = new Map<string, ListedCollection[]>()
  await inParallel(commandsAtOnce, databases, async (database) => {
    found.set(database, (await listCollections(cluster, database)).filter(isWanted))
  })
  const located = [...found].flatMap(([database, listed]) =>
    listed.flatMap(({ uuid, name }) => (uuid !== '' && isUserCollection(name) ? [{ database, uuid, name }] : [])),
  )
  const indexes = await listIndexesOf(cluster, located, commandsAtOnce)
  const withIndexes = (one: ListedCollection): CatalogEntry => ({ ...one, indexes: indexes.get(one.uuid) ?? [] })
  return new Map([...found].map(([database, listed]) => [database, listed.map(withIndexes)]))
}

/**
 * By `$listCatalog`; null where that cannot be used: on a release before 6.0, where a privilege is lacking, and through mongos, where
 * every shard answers for itself, also for collections that it holds no document of any more.
 */
async function readCatalog(cluster: Cluster): Promise<ClusterCatalog | null> {
  if (cluster.sharded || cluster.before6) return null
  let rows: Buffer[]
  try {
    rows = await RawCursor.readAll(cluster, 'admin', {
      aggregate: 1,
      pipeline: [{ $listCatalog: {} }, { $match: { db: { $nin: internalDatabaseNames } } }],
      cursor: { batchSize: 1_000_000 },
      // What the primary has now, whatever the cluster's default read concern: as listCollections and listIndexes.
      readConcern: { level: 'local' },
    })
  } catch (error) {
    if (codeOf(error) === undefined || isTransient(error)) throw error
    return null
  }
  const catalog: ClusterCatalog = new Map()
  for (const row of rows) {
    const read = readRow(row)
    // Of a release that shapes its rows in another way.
    if (!read) return null
    const { database, entry } = read
    const known = catalog.get(database) ?? []
    if (isListed(entry.name)) known.push(entry)
    // One that holds nothing but the server's bookkeeping exists as well.
    catalog.set(database, known)
  }
  return catalog
}

function readRow(bytes: Buffer): { database: string; entry: CatalogEntry } | null {
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

/** Finished ones only: the createIndexes event of one that is being built comes when it ends. */
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

/**
 * The catalog keeps some values in the type they were given in (an expiry set by collMod is an int64, a flag may be a number),
 * and listIndexes gives all of them in one (src/mongo/db/list_indexes.idl). A value that this would change stays as it is.
 */
function asListed({ name, value }: RawFields[number]): RawFields[number] {
  const number = numberOf(value)
  if (number === undefined) return { name, value }
  if (flags.has(name)) return { name, value: typedBoolean(number !== 0) }
  if (name === 'min' || name === 'max') return { name, value: typedDouble(number) }
  const isInt32 = Number.isInteger(number) && Math.abs(number) < 2 ** 31
  return { name, value: name === 'expireAfterSeconds' && isInt32 ? typedInt32(number) : value }
}

const flags = new Set(['unique', 'sparse', 'hidden', 'prepareUnique', 'background'])

/** These fields of a document and no others: most of a row is not read. */
function fieldsOf(bytes: Buffer, names: string[]): RawFields {
  const fields: RawFields = []
  for (const span of spans(bytes)) {
    const name = bytes.utf8Slice(span.nameStart, span.nameEnd)
    if (names.includes(name)) fields.push({ name, value: typedValue(bytes, span) })
  }
  return fields
}
