import { type Binary, UUID } from 'mongodb'
import { beforeEach, expect, it } from 'vitest'
import { EventApplication } from '../../src/apply/event-application.ts'
import type { Touched } from '../../src/coordination/barriers.ts'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { IncompleteCollections } from '../../src/definitions/incomplete-collections.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import { Catalog } from '../../src/domain/catalog.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { namespace } from '../../src/domain/namespace.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { SharedStream } from '../../src/mongo/shared-stream.ts'
import { emptiedClusters, type TwoClusters } from './two-clusters.ts'

/**
 * The documents of some collections have no events: of collections that the source drops and creates again with their former
 * UUIDs, as `mongorestore --preserveUUID` does, and of collections that cloneCollectionAsCapped writes.
 */

let two: TwoClusters
let catalog: Catalog
let definitions: DefinitionReconciler
let incomplete: IncompleteCollections
let selection: Selection
emptiedClusters((clusters) => {
  two = clusters
})

interface Row {
  _id: number
}

const source = () => two.sourceClient.db('app')
const things = () => source().collection<Row>('things')
const onDestination = () => two.destinationClient.db('app').collection<Row>('things')

async function now(): Promise<ClusterTime> {
  await appendOplogNote(two.source, 'test')
  return two.source.latest
}

async function identityOf(name: string): Promise<UUID> {
  const [found] = await source().listCollections({ name }).toArray()
  return new UUID((found as unknown as { info: { uuid: Binary } }).info.uuid.buffer)
}

/** Sends the commands that mongorestore sends for a collection of a dump. */
async function restore(name: string, uuid: UUID, documents: Row[]): Promise<void> {
  const o = { create: name, idIndex: { v: 2, key: { _id: 1 }, name: '_id_' } }
  await two.sourceClient.db('admin').command({ applyOps: [{ op: 'c', ns: 'app.$cmd', ui: uuid, o }] })
  if (documents.length > 0) await source().collection<Row>(name).insertMany(documents)
}

beforeEach(async () => {
  const { context } = two
  const metadata = new Metadata(two.destination, context)
  catalog = new Catalog()
  selection = new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null })
  const destination = new DestinationDefinitions(two.destination, 'beforeDataCopy')
  const parts = { source: two.source, catalog, metadata, selection, context }
  definitions = new DefinitionReconciler({ ...parts, destination })
  incomplete = new IncompleteCollections({ ...parts, shardingEntries: [] })
})

/** Applies all events since `start`. Returns the namespaces of the collections whose convergence was requested. */
async function applySince(start: ClusterTime): Promise<string[]> {
  await two.metadata.removePositions([0])
  const requested: string[] = []
  let application: EventApplication
  const converge = async (collections: ReadonlyMap<string, string>): Promise<never> => {
    requested.push(...collections.values())
    application.drain()
    throw new StoppedError()
  }
  const follow = async (touched: Touched): Promise<void> => {
    for (const [database, uuids] of touched) await definitions.reconcile(database, uuids, 'copied')
  }
  application = new EventApplication({
    source: two.source,
    metadata: two.metadata,
    catalog,
    documents: two.dependencies,
    context: two.context,
    partitions: new Map([[0, { epoch: 1, start: { kind: 'time', time: start + 1n } }]]),
    partitionCount: 1,
    selection,
    sharedStream: new SharedStream(),
    follow,
    incompleteAfter: (event) => incomplete.after(event),
    converge,
    shared: false,
    isOnSource: (database, uuid) => incomplete.isOnSource(database, uuid),
  })
  application.drainTo(await now())
  const run = application.run()
  await now()
  await run
  return requested
}

/** Makes the destination equal, with these documents in `app.things`. Returns the time up to which it is equal. */
async function synced(...documents: Row[]): Promise<ClusterTime> {
  const start = await now()
  await things().insertMany(documents)
  expect(await applySince(start)).toEqual([])
  await two.expectEqual('app')
  return await now()
}

it('if a collection was created again with its UUID before tandem applies its drop, tandem converges the collection', async () => {
  const start = await synced({ _id: 1 }, { _id: 2 })
  const uuid = await identityOf('things')
  await things().drop()
  await restore('things', uuid, [{ _id: 1 }])
  const requested = await applySince(start)
  expect(requested).toEqual(['app.things'])
  // The stored position is not after the drop, so the next run reads the drop again.
  expect((await two.metadata.loadPosition(0))?.time).toBeLessThanOrEqual(start + 1n)
})

it('if a collection was created again with its UUID before tandem applies a rename over it, tandem converges the collection', async () => {
  const start = await synced({ _id: 1 }, { _id: 2 })
  const uuid = await identityOf('things')
  await source().collection<Row>('other').insertOne({ _id: 3 })
  await source().collection('other').rename('things', { dropTarget: true })
  await things().drop()
  await restore('things', uuid, [{ _id: 1 }])
  expect(await applySince(start)).toEqual(['app.things'])
})

it('a drop that precedes the last convergence does not request another one', async () => {
  const start = await synced({ _id: 1 }, { _id: 2 })
  const uuid = await identityOf('things')
  await things().drop()
  await restore('things', uuid, [{ _id: 1 }])
  const [entry] = catalog.entries()
  if (entry) entry.convergedFrom = await now()
  await onDestination().deleteOne({ _id: 2 })
  expect(await applySince(start)).toEqual([])
  await two.expectEqual('app')
})

it('if tandem applies a drop before the collection is created again, no convergence is needed', async () => {
  const start = await synced({ _id: 1 }, { _id: 2 })
  const uuid = await identityOf('things')
  await things().drop()
  expect(await applySince(start)).toEqual([])
  const dropped = await now()
  await restore('things', uuid, [{ _id: 1 }])
  expect(await applySince(dropped)).toEqual([])
  await two.expectEqual('app')
})

it('if the name of a dropped collection belongs to a collection with another UUID, no convergence is needed', async () => {
  const start = await synced({ _id: 1 }, { _id: 2 })
  await things().drop()
  await things().insertOne({ _id: 4 })
  await source().collection<Row>('other').insertOne({ _id: 3 })
  await source().collection('other').rename('things', { dropTarget: true })
  expect(catalog.entries().map(({ database, name }) => namespace(database, name))).toEqual(['app.things'])
  expect(await applySince(start)).toEqual([])
  await two.expectEqual('app')
})

it('tandem converges a collection that cloneCollectionAsCapped has written', async () => {
  const start = await synced({ _id: 1 }, { _id: 2 })
  await source().command({ cloneCollectionAsCapped: 'things', toCollection: 'clone', size: 100_000 })
  expect(await applySince(start)).toEqual(['app.clone'])
})

it('an application that creates a capped collection and inserts into it causes no convergence', async () => {
  const start = await synced({ _id: 1 })
  const ring = await source().createCollection<Row>('ring', { capped: true, size: 100_000 })
  await ring.insertMany([{ _id: 1 }, { _id: 2 }])
  await source().createCollection('empty', { capped: true, size: 100_000 })
  expect(await applySince(start)).toEqual([])
  // The capped size is deferred until the commit, so the test compares only the documents.
  expect(await two.destinationClient.db('app').collection<Row>('ring').distinct('_id')).toEqual([1, 2])
})
