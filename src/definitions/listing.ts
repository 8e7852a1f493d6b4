import { isDeepStrictEqual } from 'node:util'
import type { Document, UUID } from 'mongodb'
import { type IndexSpecification, secondaryIndexes } from '../domain/definition.ts'
import { both, inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, isUserDatabase, namespace, splitNamespace } from '../domain/namespace.ts'
import { embedded, fieldNamed, type RawFields, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { toUuid } from '../mongo/uuid.ts'

export interface ListedCollection {
  name: string
  type: string
  /** 16 bytes as latin1 text, the key of every map of collections. Empty for views. */
  uuid: string
  options: RawFields
}

/** False for system collections except time-series buckets, which are listed so that `refuseUnsupported` finds them. */
export function isListed(name: string): boolean {
  return isUserCollection(name) || name.startsWith('system.buckets.')
}

/**
 * Returns the user databases of which this cluster may have collections, with their names on the source. On a destination
 * with renamed collections, one that is returned may have none.
 */
export async function listDatabases(cluster: Cluster): Promise<string[]> {
  const existing = await listExistingDatabases(cluster)
  return [...new Set(existing.flatMap((name) => cluster.names.sourcesOf(name)))].filter(isUserDatabase)
}

/** Returns the databases of this cluster, with their names there. */
export async function listExistingDatabases(cluster: Cluster): Promise<string[]> {
  const reply = await cluster.read('admin', { listDatabases: 1, nameOnly: true, authorizedDatabases: false })
  return (reply['databases'] as { name: string }[]).map(({ name }) => name)
}

/**
 * Returns all user collections and views of a database, with options as raw bytes. One reply shows one point in time. If
 * the destination has renamed collections of the database in other databases, each of these is read too, at its own time.
 */
export async function listCollections(cluster: Cluster, database: string, name?: string): Promise<ListedCollection[]> {
  if (name === undefined) return await listMatching(cluster, database)
  const there = splitNamespace(cluster.names.namespaceOnDestination(namespace(database, name)))
  const filter = { filter: { name: there.collection } }
  return await listMatching(cluster, database, filter, [cluster.names.onSource(there.database)])
}

/** Returns the current name of the collection with this UUID, or null if the collection does not exist. */
export async function nameOfCollection(cluster: Cluster, database: string, uuid: string): Promise<string | null> {
  const [found] = await listMatching(cluster, database, { filter: { 'info.uuid': toUuid(uuid) } })
  return found?.name ?? null
}

/** @param places the databases to read, each with the name that `onDestination` maps to it */
async function listMatching(
  cluster: Cluster,
  database: string,
  filter: Document = {},
  places = cluster.names.placesOf(database),
): Promise<ListedCollection[]> {
  const listed = await Promise.all(places.map((place) => listPlace(cluster, place, filter)))
  return listed.flat().flatMap(({ database: of, ...one }) => (of === database ? [one] : []))
}

/** Returns the listed collections of one database of the cluster, with their names on the source. */
async function listPlace(
  cluster: Cluster,
  place: string,
  filter: Document,
): Promise<(ListedCollection & { database: string })[]> {
  const documents = await RawCursor.readAll(cluster, place, {
    listCollections: 1,
    ...filter,
    cursor: { batchSize: 1_000_000 },
  })
  const there = cluster.names.onDestination(place)
  const listed: (ListedCollection & { database: string })[] = []
  for (const bytes of documents) {
    const fields = readFields(bytes)
    const listedName = stringOf(fieldNamed(fields, 'name')) ?? ''
    const type = stringOf(fieldNamed(fields, 'type')) ?? 'collection'
    if (!isListed(listedName)) continue
    const info = fieldNamed(fields, 'info')
    const uuid = info ? fieldNamed(readFields(embedded(info)), 'uuid') : undefined
    const options = fieldNamed(fields, 'options')
    const { database, collection } = splitNamespace(cluster.names.namespaceOnSource(namespace(there, listedName)))
    listed.push({
      database,
      name: collection,
      type,
      uuid: uuid ? uuid.latin1Slice(6) : '',
      options: options ? readFields(embedded(options)) : [],
    })
  }
  return listed
}

/**
 * Returns the finished secondary indexes of a collection, as raw specifications, or null if the collection does not
 * exist. Builds in progress, which `includeBuildUUIDs` marks, are omitted: their createIndexes events arrive when they
 * end.
 */
export async function listIndexes(
  cluster: Cluster,
  database: string,
  uuid: string,
): Promise<IndexSpecification[] | null> {
  const documents = await (cluster.sharded
    ? readIndexesByName(cluster, database, uuid)
    : readIndexes(cluster, database, toUuid(uuid)))
  if (!documents) return null
  return finishedIndexes(documents)
}

/** Number of parallel commands. They use only a part of the client's 64 connections, which all modules share. */
const indexesAtOnce = 16

/** A collection, with its name in a recent listing. */
export interface Located {
  database: string
  uuid: string
  name: string
}

/**
 * Reads the finished secondary indexes of these collections in parallel, by UUID. A dropped collection has no indexes.
 * Throws TransientReplyError when a collection was renamed during the read.
 * @param width number of parallel commands
 */
export async function listIndexesOf(
  cluster: Cluster,
  listed: readonly Located[],
  width = indexesAtOnce,
): Promise<Map<string, IndexSpecification[]>> {
  const indexes = new Map<string, IndexSpecification[]>()
  await inParallel(width, [...listed], async ({ database, uuid, name }) => {
    const documents = await readIndexes(cluster, database, cluster.sharded ? name : toUuid(uuid))
    indexes.set(uuid, finishedIndexes(documents ?? []))
  })
  if (!cluster.sharded) return indexes
  // mongos does not accept a UUID, so each name must belong to the same collection before and after the read.
  const names = new Map<string, string>()
  await inParallel(width, [...new Set(listed.map(({ database }) => database))], async (database) => {
    for (const one of await listCollections(cluster, database)) names.set(one.uuid, one.name)
  })
  for (const { uuid, name } of listed) {
    const now = names.get(uuid)
    if (now === undefined) indexes.set(uuid, [])
    else if (now !== name) throw renamedMeanwhile()
  }
  return indexes
}

function renamedMeanwhile(): TransientReplyError {
  return new TransientReplyError('a collection was renamed while its indexes were read')
}

function finishedIndexes(documents: Buffer[]): IndexSpecification[] {
  const specifications = documents.flatMap((bytes) => {
    const fields = readFields(bytes)
    const nested = fieldNamed(fields, 'spec')
    if (!nested) return [fields]
    return fieldNamed(fields, 'buildUUID') ? [] : [readFields(embedded(nested))]
  })
  return secondaryIndexes(specifications)
}

/** Reads by UUID every database that may have the collection. A command with a name goes to the right one. */
async function readIndexes(cluster: Cluster, database: string, collection: UUID | string): Promise<Buffer[] | null> {
  const places = typeof collection === 'string' ? [database] : cluster.names.placesOf(database)
  for (const place of places) {
    const found = await readIndexesIn(cluster, place, collection)
    if (found) return found
  }
  return null
}

async function readIndexesIn(cluster: Cluster, database: string, collection: UUID | string): Promise<Buffer[] | null> {
  try {
    return await RawCursor.readAll(cluster, database, {
      listIndexes: collection,
      includeBuildUUIDs: true,
      cursor: { batchSize: 1_000 },
    })
  } catch (error) {
    if (codeOf(error) === code.namespaceNotFound || codeOf(error) === code.collectionUUIDMismatch) return null
    throw error
  }
}

/** Reads by name, because mongos accepts no UUID here. The name must belong to the collection before and after the read. */
async function readIndexesByName(cluster: Cluster, database: string, uuid: string): Promise<Buffer[] | null> {
  const name = await nameOfCollection(cluster, database, uuid)
  if (name === null) return null
  const documents = await readIndexes(cluster, database, name)
  const after = await nameOfCollection(cluster, database, uuid)
  if (after === null) return null
  if (after !== name || !documents) throw renamedMeanwhile()
  return documents
}

/**
 * Runs `read`, a read of the catalog, and proves that its result is majority-committed. listCollections and listIndexes
 * do not support majority read concern, so a primary that is about to be deposed may show a drop that will be rolled
 * back. A majority-acknowledged oplog no-op after the read, by the same primary in the same term, commits everything
 * before it.
 *
 * mongos does not report which primary answered. There, `read` runs again after the no-op. By then, every shard's
 * primary has committed the no-op, and mongos has located that primary. A result that both reads return is therefore
 * committed.
 * @param before work that must have ended before `read` begins, such as another no-op. On a replica set it runs beside
 * another command and adds no round trip
 */
export async function readCommitted<T>(
  cluster: Cluster,
  read: () => Promise<T>,
  before: () => Promise<unknown> = async () => {},
): Promise<T> {
  const { result, proven } = await readUnproven(cluster, read, before)
  await proven
  return result
}

/** A result of a read of the catalog. It may be used irrevocably only when `proven` has resolved. */
export interface Unproven<T> {
  result: T
  /** Rejects with TransientReplyError if the result may be rolled back. */
  proven: Promise<void>
}

/**
 * Like `readCommitted`, but resolves before the proof, so that work which can be repeated does not wait for it.
 * @param election the result of `electionOf` before the read; by default it is read here
 */
export async function readUnproven<T>(
  cluster: Cluster,
  read: () => Promise<T>,
  before: () => Promise<unknown> = async () => {},
  election?: Promise<string>,
): Promise<Unproven<T>> {
  if (cluster.sharded) {
    await before()
    const result = await read()
    await appendOplogNote(cluster, 'catalog read')
    if (!isDeepStrictEqual(result, await read())) throw new TransientReplyError('the catalog changed while it was read')
    return { result, proven: Promise.resolve() }
  }
  const [elected] = await both(election ?? electionOf(cluster), before())
  const result = await read()
  const proven = proveElected(cluster, elected)
  proven.catch(() => {})
  return { result, proven }
}

async function proveElected(cluster: Cluster, election: string): Promise<void> {
  await appendOplogNote(cluster, 'catalog read')
  // This must not run in parallel with the no-op, which another primary could acknowledge after this reply.
  if (election !== (await electionOf(cluster))) {
    throw new TransientReplyError('the primary changed during a catalog read')
  }
}

/**
 * Confirms that a collection is gone after a command reported this. The command read the primary's current catalog, so
 * the drop may still be rolled back, and no event would report the rollback. Throws TransientReplyError if the
 * collection exists.
 */
export async function proveGone(cluster: Cluster, database: string, uuid: string): Promise<void> {
  const listed = await readCommitted(cluster, () => listCollections(cluster, database))
  if (listed.some((one) => one.uuid === uuid)) throw new TransientReplyError('a drop on the source was rolled back')
}

/** Identifies the primary and its term, on a replica set. */
export async function electionOf(cluster: Cluster): Promise<string> {
  const hello = await cluster.read('admin', { hello: 1 })
  return String(hello['electionId'])
}
