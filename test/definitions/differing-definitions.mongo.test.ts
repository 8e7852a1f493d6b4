import type { Db } from 'mongodb'
import { expect, it } from 'vitest'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { findDiffering } from '../../src/definitions/differing-definitions.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import { Catalog } from '../../src/domain/catalog.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'

/** The last read of all definitions at a commit finds exactly the collections that differ. */

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

const source = (): Db => two.sourceClient.db('app')
const destination = (): Db => two.destinationClient.db('app')

async function createSource(): Promise<void> {
  await source().createCollection('capped', { capped: true, size: 10_000, max: 5 })
  await source().createCollection('collated', { collation: { locale: 'de', strength: 1 } })
  await source().createCollection('view', { viewOn: 'things', pipeline: [] })
  await source()
    .collection('things')
    .createIndexes([
      { key: { u: 1 }, name: 'u', unique: true },
      { key: { at: 1 }, name: 'at', expireAfterSeconds: 3_600 },
      { key: { h: 1 }, name: 'h', hidden: true },
      { key: { text: 'text' }, name: 'text' },
      { key: { p: 1 }, name: 'p', partialFilterExpression: { p: { $gt: 5 } } },
    ])
  await source().command({ collMod: 'things', index: { name: 'at', expireAfterSeconds: 7_200 } })
  await two.sourceClient.db('other').collection('things').createIndex({ a: 1 })
}

async function followed() {
  const { metadata, context } = two
  const catalog = new Catalog()
  const selection = new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null })
  const definitions = new DestinationDefinitions(two.destination, 'beforeDataCopy')
  const reconciler = new DefinitionReconciler({
    ...{ source: two.source, catalog, metadata, selection, destination: definitions, context },
  })
  for (const database of ['app', 'other']) await reconciler.reconcile(database, 'all', 'copied')
  const differing = async () => {
    const { databases } = await findDiffering({
      ...{ source: two.source, destination: two.destination, selection, catalog },
      isFollowed: (...definition) => definitions.indexes.isFollowed(...definition),
      included: definitions.indexes.included,
      moved: (placements) => reconciler.moved(placements),
    })
    return databases
  }
  const named = async () =>
    [...(await differing())].map(([database, uuids]) => [database, [...uuids].map((uuid) => catalog.get(uuid)?.name)])
  return { reconciler, differing, named }
}

it.each([
  ['an option', ['capped'], () => source().command({ collMod: 'capped', validator: { a: 1 } })],
  ['an index', ['things'], () => source().collection('things').createIndex({ more: 1 })],
  ['an expiry', ['things'], () => source().command({ collMod: 'things', index: { name: 'p', expireAfterSeconds: 5 } })],
  ['a name', ['collated'], () => source().collection('collated').rename('renamed')],
  ['a drop', ['collated'], () => source().collection('collated').drop()],
  ['a collection', [], () => source().createCollection('new')],
  ['a view', [], () => source().command({ collMod: 'view', viewOn: 'collated', pipeline: [] })],
  [
    'an option of the destination',
    ['collated'],
    () => destination().command({ collMod: 'collated', validator: { a: 1 } }),
  ],
  ['an index of the destination', ['things'], () => destination().collection('things').createIndex({ foreign: 1 })],
  ['an index dropped on the destination', ['things'], () => destination().collection('things').dropIndex('text')],
  ['a view dropped on the destination', [], () => destination().dropCollection('view')],
])(
  'a change of %s is found, and nothing is found before the change or after tandem has applied it',
  async (name, names, change) => {
    await createSource()
    const { reconciler, differing, named } = await followed()
    expect(await named()).toEqual([])
    await change()
    expect(await named()).toEqual([['app', names]])
    // A commit passes 'refused', because it does not accept new collections.
    const state = name === 'a collection' ? 'copied' : 'refused'
    for (const [database, touched] of await differing()) await reconciler.reconcile(database, touched, state)
    expect(await named()).toEqual([])
  },
)
