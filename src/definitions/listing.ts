import { isDeepStrictEqual } from 'node:util'
import type { Document, UUID } from 'mongodb'
import { type IndexSpecification, secondaryIndexes } from '../domain/definition.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, isUserDatabase } from '../domain/namespace.ts'
import { embedded, fieldNamed, type RawFields, readFields, stringOf } from '../domain/raw-bson.ts'
import { type Cluster, RawCursor } from '../mongo/cluster.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { toUuid } from '../mongo/uuid.ts'

export interface ListedCollection {
  name: string
  type: string
  /** 16 bytes as latin1 text: the key of every map of collections. Empty for views. */
  uuid: string
  options: RawFields
}

/** The server's own bookkeeping is left out, but for time-series buckets, which are refused by name. */
export function isListed(name: string): boolean {
  return isUserCollection(name) || name.startsWith('system.buckets.')
}

export async function listDatabases(cluster: Cluster): Promise<string[]> {
  const reply = await cluster.read('admin', { listDatabases: 1, nameOnly: true, authorizedDatabases: false })
  return (reply['databases'] as { name: string }[]).map(({ name }) => name).filter(isUserDatabase)
}

/** All user collections and views of a database, options as raw bytes. One reply of the server, so one moment. */
export async function listCollections(cluster: Cluster, database: string, name?: string): Promise<ListedCollection[]> {
  return await listMatching(cluster, database, name === undefined ? {} : { filter: { name } })
}

/** Where the collection with this UUID stands now; null when it is gone. */
export async function nameOfCollection(cluster: Cluster, database: string, uuid: string): Promise<string | null> {
  const [found] = await listMatching(cluster, database, { filter: { 'info.uuid': toUuid(uuid) } })
  return found?.name ?? null
}

async function listMatching(cluster: Cluster, database: string, filter: Document): Promise<ListedCollection[]> {
  const documents = await RawCursor.readAll(cluster, database, {
    listCollections: 1,
    ...filter,
    cursor: { batchSize: 1_000_000 },
  })
  const listed: ListedCollection[] = []
  for (const bytes of documents) {
    const fields = readFields(bytes)
    const listedName = stringOf(fieldNamed(fields, 'name')) ?? ''
    const type = stringOf(fieldNamed(fields, 'type')) ?? 'collection'
    if (!isListed(listedName)) continue
    const info = fieldNamed(fields, 'info')
    const uuid = info ? fieldNamed(readFields(embedded(info)), 'uuid') : undefined
    const options = fieldNamed(fields, 'options')
    listed.push({
      name: listedName,
      type,
      uuid: uuid ? uuid.latin1Slice(6) : '',
      options: options ? readFields(embedded(options)) : [],
    })
  }
  return listed
}

/**
 * The finished secondary indexes of a collection, as raw specifications; null when the collection is gone. Builds
 * under way are left out (`includeBuildUUIDs` marks them): their createIndexes event comes when they end.
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

/** Commands at a time, of the 64 connections that everything shares. */
const indexesAtOnce = 16

/** A collection as it was listed a moment ago. */
export interface Located {
  database: string
  uuid: string
  name: string
}

/**
 * The finished secondary indexes of these collections, by UUID, in parallel; a collection that is gone has none.
 * @param width commands at a time
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
  // mongos takes no UUID, so each name must be the same collection's before and after.
  const names = new Map<string, string>()
  await inParallel(width, [...new Set(listed.map(({ database }) => database))], async (database) => {
    for (const one of await listCollections(cluster, database)) names.set(one.uuid, one.name)
  })
  for (const { uuid, name } of listed) {
    const now = names.get(uuid)
    if (now === undefined) indexes.set(uuid, [])
    else if (now !== name) throw new TransientReplyError('a collection was renamed while its indexes were read')
  }
  return indexes
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

async function readIndexes(cluster: Cluster, database: string, collection: UUID | string): Promise<Buffer[] | null> {
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

/** mongos takes no UUID here, so the name must be the same collection's before and after. */
async function readIndexesByName(cluster: Cluster, database: string, uuid: string): Promise<Buffer[] | null> {
  const name = await nameOfCollection(cluster, database, uuid)
  if (name === null) return null
  const documents = await readIndexes(cluster, database, name)
  const after = await nameOfCollection(cluster, database, uuid)
  if (after === null) return null
  if (after !== name || !documents)
    throw new TransientReplyError('a collection was renamed while its indexes were read')
  return documents
}

/**
 * Runs `read`, a look at a catalogue, and proves that what it saw is majority-committed: listCollections and listIndexes
 * know no majority read concern, so a primary about to be deposed may show a drop that will be rolled back. A
 * majority-acknowledged oplog note after the look, by the same primary in the same term, commits everything before it.
 *
 * mongos does not tell which primary answered. There the look is taken again after the note, which every shard's primary
 * has committed by then and which mongos has found that primary by: what both looks show is committed.
 */
export async function readCommitted<T>(cluster: Cluster, read: () => Promise<T>): Promise<T> {
  if (cluster.sharded) {
    const seen = await read()
    await appendOplogNote(cluster, 'catalogue read')
    if (!isDeepStrictEqual(seen, await read())) throw new TransientReplyError('the catalogue changed while it was read')
    return seen
  }
  const before = await electionOf(cluster)
  const result = await read()
  await appendOplogNote(cluster, 'catalogue read')
  const after = await electionOf(cluster)
  if (before !== after) throw new TransientReplyError('the primary changed during a catalogue read')
  return result
}

/**
 * A command said the collection is gone, but it asked the primary's present catalogue: a drop seen there may yet be
 * rolled back, and no event would ever tell. Throws TransientReplyError when the collection is there after all.
 */
export async function proveGone(cluster: Cluster, database: string, uuid: string): Promise<void> {
  const listed = await readCommitted(cluster, () => listCollections(cluster, database))
  if (listed.some((one) => one.uuid === uuid)) throw new TransientReplyError('a drop on the source was rolled back')
}

async function electionOf(cluster: Cluster): Promise<string> {
  const hello = await cluster.read('admin', { hello: 1 })
  return String(hello['electionId'])
}
