import { type Db, type Document, MongoClient } from 'mongodb'
import { compareDocuments, Differences } from './compare-documents.ts'
import { elementMap, nestedDocument, show, stringOf } from './compare-raw.ts'
import { databaseNames, internalDatabases } from './databases.ts'

const differencesMax = 50
/** Metadata of MongoDB's own migration tools. */
const otherTools = /^(__mdb_internal|mongosync_internal_|mongosync_reserved_)/

export interface Comparison {
  readonly equal: boolean
  readonly differences: string[]
  readonly collections: number
  readonly documents: number
  readonly bytes: number
}

interface CatalogEntry {
  readonly type: string
  readonly options: Map<string, Buffer>
}

/**
 * Compares two clusters byte by byte. This oracle is independent: it reads both with only the driver and shares no
 * code with the product. Nothing may write to either cluster during the comparison. `documents` and `bytes` count the
 * source's documents. Reading stops at `maxDifferences` differences, so both counts may be too small if `equal` is
 * false.
 */
export async function compareClusters(
  sourceUri: string,
  destinationUri: string,
  options: {
    readonly ignoreDatabases?: readonly string[]
    readonly shardKeys?: ShardKeys
    /** Selects the collections of the user databases to compare; by default all. */
    readonly selects?: Selects
    /**
     * The names on the destination of databases that have other names on the source. A database of the destination that has
     * the name of such a database of the source has no counterpart, and is not compared.
     */
    readonly renamed?: Renamed
    /** Number of differences at which reading stops; 50 by default. */
    readonly maxDifferences?: number
  } = {},
): Promise<Comparison> {
  const [source, destination] = [new MongoClient(sourceUri), new MongoClient(destinationUri)]
  const differences = new Differences(options.maxDifferences ?? differencesMax)
  const total = { collections: 0, documents: 0, bytes: 0 }
  try {
    const ignored = new Set([...internalDatabases, ...(options.ignoreDatabases ?? [])])
    const { renamed = {} } = options
    const theirs = (await databaseNames(destination)).flatMap((name) => onSource(name, renamed) ?? [])
    const names = new Set([...(await databaseNames(source)), ...theirs])
    for (const name of [...names].filter((name) => !ignored.has(name) && !otherTools.test(name)).sort()) {
      await compareDatabase(source.db(name), destination.db(renamed[name] ?? name), differences, total, options.selects)
    }
    await compareDistributions(source, destination, { expected: options.shardKeys, renamed }, differences)
  } finally {
    await Promise.all([source.close(), destination.close()])
  }
  return { equal: differences.list.length === 0, differences: differences.list, ...total }
}

export type Renamed = Readonly<Record<string, string>>

/** Returns the source's name of a database of the destination; null if the database has no counterpart. */
export function onSource(database: string, renamed: Renamed): string | null {
  const [from] = Object.entries(renamed).find(([, to]) => to === database) ?? []
  return from ?? (database in renamed ? null : database)
}

export type Selects = (database: string, collection: string) => boolean

/** Shard keys as JSON by namespace, followed by ` unique` if they are. The order of a key's fields is significant. */
type ShardKeys = Record<string, string>

/** @param expected the requested shard keys if the source is a replica set; by default the source's own keys */
async function compareDistributions(
  source: MongoClient,
  destination: MongoClient,
  { expected, renamed }: { expected: ShardKeys | undefined; renamed: Renamed },
  differences: Differences,
): Promise<void> {
  const onDestination = (name: string): string => {
    const dot = name.indexOf('.')
    return (renamed[name.slice(0, dot)] ?? name.slice(0, dot)) + name.slice(dot)
  }
  const wanted = Object.entries(expected ?? (await shardKeys(source)))
  const ours = Object.fromEntries(wanted.map(([name, key]) => [onDestination(name), key]))
  const theirs = await shardKeys(destination)
  for (const name of [...new Set([...Object.keys(ours), ...Object.keys(theirs)])].sort()) {
    if (ours[name] !== theirs[name]) differences.add(name, 'shard key differs', `${ours[name]} | ${theirs[name]}`)
  }
  for (const name of Object.keys(theirs)) await compareShards(destination, name, differences)
}

/** Checks that each index is built and the same on all shards of the destination that own chunks of the collection. */
async function compareShards(destination: MongoClient, name: string, differences: Differences): Promise<void> {
  const dot = name.indexOf('.')
  const collection = destination.db(name.slice(0, dot)).collection(name.slice(dot + 1))
  const onShards = new Map<string, Set<string>>()
  for (const { name: index, spec, building, shard } of await collection.aggregate([{ $indexStats: {} }]).toArray()) {
    const text = `${index}${building ? ' (building)' : ''}${spec.unique ? ' (unique)' : ''} ${JSON.stringify(spec.key)}`
    onShards.set(shard, (onShards.get(shard) ?? new Set()).add(text))
  }
  for (const text of new Set([...onShards.values()].flatMap((indexes) => [...indexes]))) {
    const lacking = [...onShards].flatMap(([shard, indexes]) => (indexes.has(text) ? [] : [shard]))
    if (lacking.length > 0)
      differences.add(name, 'an index is not on all shards', `${text} | not on ${lacking.join(', ')}`)
  }
}

/** Returns the cluster's shard keys; empty for a replica set. */
async function shardKeys(client: MongoClient): Promise<ShardKeys> {
  if ((await client.db('admin').command({ hello: 1 }))['msg'] !== 'isdbgrid') return {}
  const found = await client
    .db('config')
    .collection<{ _id: string; key: Document; unique?: boolean }>('collections')
    .find()
    .toArray()
  const user = found.filter(({ _id }) => !internalDatabases.includes(_id.split('.')[0] ?? ''))
  return Object.fromEntries(
    user.map(({ _id, key, unique }) => [_id, `${JSON.stringify(key)}${unique ? ' unique' : ''}`]),
  )
}

async function compareDatabase(
  source: Db,
  destination: Db,
  differences: Differences,
  total: { collections: number; documents: number; bytes: number },
  selects: Selects = () => true,
): Promise<void> {
  const [ours, theirs] = await Promise.all([catalog(source), catalog(destination)])
  for (const name of [...new Set([...ours.keys(), ...theirs.keys()])].sort()) {
    if (!selects(source.databaseName, name)) continue
    const namespace = `${source.databaseName}.${name}`
    const [a, b] = [ours.get(name), theirs.get(name)]
    if (!a) differences.add(namespace, 'only on destination', b?.type ?? '')
    else if (!b) differences.add(namespace, 'missing on destination', a.type)
    else if (a.type !== b.type) differences.add(namespace, 'type differs', `${a.type} | ${b.type}`)
    else {
      total.collections++
      compareFields(namespace, 'option', a.options, b.options, differences)
      if (a.type !== 'collection' || differences.full) continue
      await compareIndexes(source, destination, name, differences)
      const collections = [source.collection(name), destination.collection(name)] as const
      const tally = await compareDocuments(...collections, { _id: 1 }, differences)
      total.documents += tally.documents
      total.bytes += tally.bytes
      if (isTrue(a.options.get('capped')) && isTrue(b.options.get('capped'))) {
        await compareDocuments(...collections, { $natural: 1 }, differences)
      }
    }
  }
}

/**
 * Buckets of time series are compared as ordinary collections. `system.views` is excluded because the views themselves
 * are compared.
 */
function isCompared(name: string): boolean {
  return !name.startsWith('system.') || name.startsWith('system.buckets.') || name === 'system.js'
}

async function catalog(db: Db): Promise<Map<string, CatalogEntry>> {
  const listed = await rawBytes(db.listCollections({}, { raw: true } as Document).toArray())
  const entries = new Map<string, CatalogEntry>()
  for (const document of listed) {
    const fields = elementMap(document)
    const name = stringOf(fields.get('name'))
    if (!isCompared(name)) continue
    const options = elementMap(nestedDocument(fields.get('options')) ?? Buffer.alloc(5))
    dropDefault(options, 'validationLevel', 'strict')
    dropDefault(options, 'validationAction', 'error')
    entries.set(name, { type: stringOf(fields.get('type')), options })
  }
  return entries
}

/**
 * Deletes an option that has its default value, which means the same as its absence. The server lists `validationLevel`
 * and `validationAction` after any collMod that sets a validator.
 */
function dropDefault(options: Map<string, Buffer>, name: string, value: string): void {
  if (stringOf(options.get(name)) === value) options.delete(name)
}

function isTrue(value: Buffer | undefined): boolean {
  return value?.[0] === 8 && value[1] === 1
}

async function compareIndexes(source: Db, destination: Db, name: string, differences: Differences): Promise<void> {
  const namespace = `${source.databaseName}.${name}`
  const [ours, theirs] = await Promise.all([indexes(source, name), indexes(destination, name)])
  for (const index of [...new Set([...ours.keys(), ...theirs.keys()])].sort()) {
    const [a, b] = [ours.get(index), theirs.get(index)]
    if (!a) differences.add(namespace, 'index only on destination', index)
    else if (!b) differences.add(namespace, 'index missing on destination', index)
    else compareFields(namespace, `index ${index}`, a, b, differences)
  }
}

async function indexes(db: Db, name: string): Promise<Map<string, Map<string, Buffer>>> {
  const listed = await rawBytes(db.collection(name).listIndexes({ raw: true }).toArray())
  return new Map(
    listed.map((document) => {
      const fields = elementMap(document)
      fields.delete('ns')
      fields.delete('background')
      return [stringOf(fields.get('name')), fields]
    }),
  )
}

/**
 * Compares fields by name, in any order, and their values byte by byte. Therefore `key: {a: 1, b: 1}` differs from
 * `key: {b: 1, a: 1}`.
 */
function compareFields(
  namespace: string,
  what: string,
  ours: Map<string, Buffer>,
  theirs: Map<string, Buffer>,
  differences: Differences,
): void {
  for (const field of new Set([...ours.keys(), ...theirs.keys()])) {
    const [a, b] = [ours.get(field), theirs.get(field)]
    if (a && b && Buffer.compare(a, b) === 0) continue
    differences.add(namespace, `${what} differs`, `${field}: ${show(a)} | ${show(b)}`)
  }
}

/** Returns the documents' bytes. The driver's types do not include `raw` for these two cursors, but it works. */
async function rawBytes(listed: Promise<unknown[]>): Promise<Buffer[]> {
  return (await listed).map((document) => {
    if (document instanceof Uint8Array) return Buffer.from(document.buffer, document.byteOffset, document.byteLength)
    throw new Error('the driver no longer supports `raw` on catalog cursors')
  })
}
