import { isDeepStrictEqual } from 'node:util'
import type { Document, UUID } from 'mongodb'
import { type IndexSpecification, secondaryIndexes } from '../domain/definition.ts'
import { both, inParallel } from '../domain/in-parallel.ts'
import { inSlices } from '../domain/in-slices.ts'
import { isUserCollection, isUserDatabase, namespace, splitNamespace } from '../domain/namespace.ts'
import type { NamespaceRemap } from '../domain/namespace-remap.ts'
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
 * Returns the collections and views of a database for which `isListed` is true, with options as raw bytes. The result shows
 * one point in time. If the destination has renamed collections of the database in other databases, each of these is read too, at its own time.
 * @param name returns only the collection or view with this name
 */
export async function listCollections(cluster: Cluster, database: string, name?: string): Promise<ListedCollection[]> {
  return await (name === undefined ? listMatching(cluster, database) : listNamed(cluster, database, [name]))
}

/** Returns those of these user collections and views that exist. The server looks them up by name and lists no others. */
export async function listNamed(
  cluster: Cluster,
  database: string,
  names: readonly string[],
): Promise<ListedCollection[]> {
  const byPlace = new Map<string, string[]>()
  for (const name of names) {
    const there = splitNamespace(cluster.names.namespaceOnDestination(namespace(database, name)))
    const place = cluster.names.onSource(there.database)
    const found = byPlace.get(place) ?? []
    found.push(there.collection)
    byPlace.set(place, found)
  }
  const listed = await Promise.all(
    [...byPlace].map(([place, $in]) => listMatching(cluster, database, { filter: { name: { $in } } }, [place])),
  )
  return listed.flat()
}

/** Returns the views of a database. The reply does not contain its collections, of which there may be very many. */
export async function listViews(cluster: Cluster, database: string): Promise<ListedCollection[]> {
  return await listMatching(cluster, database, { filter: { type: 'view' } })
}

/** Returns those of these collections that exist. The reply contains no others. An empty UUID, as of a view, matches none. */
export async function listByUuid(
  cluster: Cluster,
  database: string,
  uuids: readonly string[],
): Promise<ListedCollection[]> {
  const wanted = uuids.filter((uuid) => uuid !== '').map(toUuid)
  return await listMatching(cluster, database, { filter: { 'info.uuid': { $in: wanted } } })
}

/** Returns the current name of the collection with this UUID, or null if the database has no such collection. */
export async function nameOfCollection(cluster: Cluster, database: string, uuid: string): Promise<string | null> {
  const [found] = await listByUuid(cluster, database, [uuid])
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
  return (await inSlices(documents, (one) => toListed(one, cluster.names, there))).filter((one) => one !== null)
}

/** @param there the name on the cluster of the database that has the collection */
function toListed(
  document: Buffer,
  names: NamespaceRemap,
  there: string,
): (ListedCollection & { database: string }) | null {
  const fields = readFields(document)
  const listedName = stringOf(fieldNamed(fields, 'name')) ?? ''
  if (!isListed(listedName)) return null
  const info = fieldNamed(fields, 'info')
  const uuid = info ? fieldNamed(readFields(embedded(info)), 'uuid') : undefined
  const options = fieldNamed(fields, 'options')
  const { database, collection } = splitNamespace(names.namespaceOnSource(namespace(there, listedName)))
  return {
    database,
    name: collection,
    type: stringOf(fieldNamed(fields, 'type')) ?? 'collection',
    uuid: uuid ? uuid.latin1Slice(6) : '',
    options: options ? readFields(embedded(options)) : [],
  }
}

/**
 * Returns the finished secondary indexes of a collection, as raw specifications, or null if the collection does not
 * exist. Index builds in progress, which `includeBuildUUIDs` marks, are omitted: the source emits their createIndexes
 * events when they end. Throws TransientReplyError if the collection was renamed during a read through mongos.
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

/** Number of parallel commands. They use only some of the client's 64 connections, which all modules share. */
const indexesAtOnce = 16

/** A collection, with its name in a recent listing. */
export interface Located {
  database: string
  uuid: string
  name: string
}

/**
 * Reads the finished secondary indexes of these collections in parallel, and returns them by the collection's UUID. The
 * list of a dropped collection is empty. Throws TransientReplyError if a collection was renamed during a read through
 * mongos.
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

/** Reads by name, because mongos does not accept a UUID. The name must belong to the collection before and after the read. */
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
 * mongos does not report which primary answered, so on a sharded cluster `read` runs again after the no-op. By then, the
 * primary of every shard has committed the no-op, and mongos knows these primaries. A result that both reads return is
 * therefore committed. If the results differ, TransientReplyError is thrown.
 * @param before work that must have ended before `read` begins, such as another no-op. On a replica set it runs in
 * parallel with the command that identifies the primary, so it adds no round trip
 * @throws TransientReplyError if the result may be rolled back
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

/** The result of a read of the catalog. Nothing irreversible may depend on it before `proven` has resolved. */
export interface Unproven<T> {
  result: T
  /** Rejects with TransientReplyError if the result may be rolled back. */
  proven: Promise<void>
}

/**
 * Like `readCommitted`, but on a replica set it resolves before the proof, so that work that can be repeated does not wait
 * for the proof. On a sharded cluster the result is already proven.
 * @param election the result of `electionOf` before the read; by default it is read here. It is not used on a sharded
 * cluster
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
  // If the caller fails before it awaits `proven`, a rejection must not end the process.
  proven.catch(() => {})
  return { result, proven }
}

async function proveElected(cluster: Cluster, election: string): Promise<void> {
  await appendOplogNote(cluster, 'catalog read')
  // This read must follow the no-op. In parallel, another primary could acknowledge the no-op after this reply.
  if (election !== (await electionOf(cluster))) {
    throw new TransientReplyError('the primary changed during a catalog read')
  }
}

/**
 * Confirms that a collection of the source is gone after a command has reported this. The command read the primary's
 * current catalog, so the drop may still be rolled back, and no event would report the rollback.
 * @throws TransientReplyError if the collection exists. Its drop was rolled back, or a source older than 6.0 has renamed
 * it within the database (`unlessGone`)
 */
export async function proveGone(cluster: Cluster, database: string, uuid: string): Promise<void> {
  const listed = await readCommitted(cluster, () => listByUuid(cluster, database, [uuid]))
  if (listed.length > 0) {
    throw new TransientReplyError(
      'the collection still exists on the source: its drop was rolled back, or it was renamed',
    )
  }
}

/** Returns a text that identifies the primary of a replica set and its term. */
export async function electionOf(cluster: Cluster): Promise<string> {
  const hello = await cluster.read('admin', { hello: 1 })
  return String(hello['electionId'])
}
