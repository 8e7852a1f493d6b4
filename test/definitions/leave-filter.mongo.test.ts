import { beforeEach, expect, it } from 'vitest'
import { DeferredOptions } from '../../src/definitions/deferred-options.ts'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { leaveFilter } from '../../src/definitions/leave-filter.ts'
import { listCollections, listIndexes } from '../../src/definitions/listing.ts'
import { Catalog, type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { indexName } from '../../src/domain/definition.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'

/** When the filter no longer includes a collection, tandem restores its deferred options and builds its missing indexes. */

let two: TwoClusters
let entry: CatalogEntry
emptiedClusters((clusters) => {
  two = clusters
})

const logged: [string, unknown][] = []
const indexesThere = async () =>
  ((await listIndexes(two.destination, 'app', entry.destinationUUID ?? '')) ?? []).map(indexName)

async function leave(): Promise<void> {
  const { destination, source, metadata } = two
  const context = { ...two.context, journal: (...line: [string, unknown]) => void logged.push(line) }
  const catalog = new Catalog()
  catalog.add(entry)
  const parts = {
    destination,
    selection: new Selection(source, { includeNamespaces: [], excludeNamespaces: null }),
    catalog,
    metadata: new Metadata(destination, context),
    destinationDefinitions: new DestinationDefinitions(destination, 'afterDataCopy'),
    deferredOptions: new DeferredOptions(destination, context),
    context,
  }
  await metadata.collections.save([entry])
  await leaveFilter(parts, [entry], false)
}

/** Creates a collection on both clusters, with indexes only on the source. */
beforeEach(async () => {
  logged.length = 0
  const things = two.sourceClient.db('app').collection('things')
  await things.createIndex({ n: 1 })
  await things.createIndex({ u: 1 }, { unique: true })
  await two.destinationClient.db('app').createCollection('things')
  const [source, destination] = await Promise.all(
    [two.source, two.destination].map((one) => listCollections(one, 'app')),
  )
  if (!source?.[0] || !destination?.[0]) throw new Error('app.things does not exist')
  const indexes = (await listIndexes(two.source, 'app', source[0].uuid)) ?? []
  entry = newEntry('app', source[0], { options: source[0].options, indexes }, 'copying')
  entry.destinationUUID = destination[0].uuid
})

it('the missing indexes of a collection that leaves before its copy has ended are not built, and the log names them', async () => {
  entry.awaitsIndexes = true
  await leave()
  expect(await indexesThere()).toEqual([])
  expect(logged).toContainEqual(['indexes not built', { namespace: 'app.things', indexes: ['n_1', 'u_1'] }])
})

it('the missing indexes of a collection that leaves after its copy has ended are built', async () => {
  await leave()
  expect((await indexesThere()).sort()).toEqual(['n_1', 'u_1'])
  expect(logged).toEqual([['namespace excluded', { namespace: 'app.things', dropped: false }]])
})
