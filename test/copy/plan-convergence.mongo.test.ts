import { expect, it } from 'vitest'
import type { Barriers } from '../../src/coordination/barriers.ts'
import { planConvergence } from '../../src/copy/plan-convergence.ts'
import { DeferredOptions } from '../../src/definitions/deferred-options.ts'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { listCollections } from '../../src/definitions/listing.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import { Catalog, newEntry } from '../../src/domain/catalog.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'

/** Tests what the plan of a convergence does to the collections of the destination. */

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

it('a collection that the destination does not have yet is created, and a view is not mistaken for it', async () => {
  const { source, destination, context } = two
  await two.sourceClient.db('app').createCollection('orders', { validator: { total: { $gt: 0 } } })
  // The reconciliation keeps this view, because the source has the same view.
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client.db('app').createCollection('recent', { viewOn: 'orders', pipeline: [] })
  }
  const listed = await listCollections(source, 'app')
  const orders = listed.find(({ name }) => name === 'orders')
  if (!orders) throw new Error('app.orders does not exist')
  const metadata = new Metadata(destination, context)
  // This is an intent that a coordinator has stored before it died.
  const entry = newEntry('app', orders, { options: orders.options, indexes: [] }, 'copying')
  await metadata.collections.save([entry])
  const catalog = new Catalog()
  for (const one of await metadata.collections.load()) catalog.add(one)
  const selection = new Selection(source, { includeNamespaces: null, excludeNamespaces: null })
  const destinationDefinitions = new DestinationDefinitions(destination, 'beforeDataCopy')
  const stored = { source, destination, catalog, metadata, selection, context }
  await planConvergence(
    {
      ...stored,
      definitions: new DefinitionReconciler({ ...stored, destination: destinationDefinitions }),
      destinationDefinitions,
      deferredOptions: new DeferredOptions(destination, context),
      // Only a convergence of all collections uses it.
      barriers: null as unknown as Barriers,
      databases: async () => new Set(['app']),
      epochs: new Map([[0, 1]]),
      atStep: () => {},
      discardVerified: async () => {},
      shardingEntries: [],
      replaced: null,
    },
    new Set([orders.uuid]),
  )
  const created = (await listCollections(destination, 'app')).find(({ name }) => name === 'orders')
  expect(created?.options).toEqual(orders.options)
  expect(catalog.get(orders.uuid)).toMatchObject({
    destinationUUID: created?.uuid,
    state: 'copying',
    converging: false,
  })
})
