import { expect, it } from 'vitest'
import type { Barriers } from '../../src/coordination/barriers.ts'
import { planConvergence } from '../../src/copy/plan-convergence.ts'
import { DeferredOptions } from '../../src/definitions/deferred-options.ts'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { listCollections } from '../../src/definitions/listing.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import { Catalog, newEntry } from '../../src/domain/catalog.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'
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

/** The exchange is found by one of its two collections, by neither, and by both. */
it.each([
  ['before the plan', ['b']],
  ['while the plan of others is made', ['y']],
  ['while their own plan is made', ['b', 'x']],
])(
  'collections that have exchanged names of which one is placed in another database are all copied again, also those that were renamed %s',
  async (when, scope) => {
    const { source, context } = two
    const names = new NamespaceRemap([
      { from: { database: 'a', collection: 'b' }, to: { database: 'c', collection: 'd' } },
    ])
    const destination = two.destination.openWith(names)
    try {
      const [a, there] = [two.sourceClient.db('a'), two.destinationClient]
      const uuids = new Map<string, string>()
      const metadata = new Metadata(destination, context)
      const catalog = new Catalog()
      const selection = new Selection(source, { includeNamespaces: null, excludeNamespaces: null })
      const destinationDefinitions = new DestinationDefinitions(destination, 'beforeDataCopy')
      const stored = { source, destination, catalog, metadata, selection, context }
      const definitions = new DefinitionReconciler({ ...stored, destination: destinationDefinitions })
      for (const name of ['b', 'x', 'y']) {
        await a.collection(name).insertOne({ name })
        const [listed] = await listCollections(source, 'a', name)
        uuids.set(name, listed?.uuid ?? '')
      }
      await definitions.reconcile('a', 'all', 'copied')
      for (const [database, name] of [
        ['c', 'd'],
        ['a', 'x'],
        ['a', 'y'],
      ] as const)
        await there.db(database).collection(name).insertOne({ old: true })
      const exchange = async (): Promise<void> => {
        await a.renameCollection('b', 'aside')
        await a.renameCollection('x', 'b')
        await a.renameCollection('aside', 'x')
      }
      if (when === 'before the plan') await exchange()
      let isExchanged = when === 'before the plan'
      await planConvergence(
        {
          ...stored,
          definitions,
          destinationDefinitions,
          deferredOptions: new DeferredOptions(destination, context),
          barriers: null as unknown as Barriers,
          databases: async () => new Set(['a']),
          epochs: new Map([[0, 1]]),
          atStep: () => {},
          discardVerified: async () => {
            if (!isExchanged) await exchange()
            isExchanged = true
          },
          shardingEntries: [],
          replaced: null,
        },
        new Set(scope.map((name) => uuids.get(name) ?? '')),
      )
      const entries = new Map((await metadata.collections.load()).map((entry) => [entry.uuid, entry]))
      const found = async (database: string, name: string) =>
        (await there.db(database).listCollections({ name }).toArray())[0] as { info?: { uuid?: { buffer: Buffer } } }
      for (const [formerly, name, database, own] of [
        ['b', 'x', 'a', 'x'],
        ['x', 'b', 'c', 'd'],
      ] as const) {
        const entry = entries.get(uuids.get(formerly) ?? '')
        expect(entry).toMatchObject({ name, state: 'copying', planned: false })
        expect(catalog.get(entry?.uuid ?? '')).toMatchObject({ converging: entry?.converging, name })
        expect(typeof entry?.convergedFrom).toBe('bigint')
        expect((await found(database, own)).info?.uuid?.buffer.toString('latin1')).toBe(entry?.destinationUUID)
        expect(await there.db(database).collection(own).countDocuments()).toBe(0)
      }
      expect(entries.get(uuids.get('y') ?? '')?.state).toBe(scope.includes('y') ? 'copying' : 'copied')
      expect(await there.db('a').collection('y').countDocuments()).toBe(1)
    } finally {
      await destination.close()
    }
  },
)
