import { expect, it } from 'vitest'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { findDefinitionMismatches } from '../../src/definitions/read-definitions.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import { Catalog } from '../../src/domain/catalog.ts'
import { neverExpires } from '../../src/domain/definition.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { emptiedClusters, type TwoClusters } from './two-clusters.ts'

/** An index becomes a TTL index on the source, or stops being one, between two reads of the catalog. */

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

const things = () => two.sourceClient.db('app').collection('things')
const expiryOnDestination = async () => {
  const indexes = await two.destinationClient.db('app').collection('things').indexes()
  return indexes.find(({ name }) => name === 'at')?.['expireAfterSeconds']
}

it.each([
  [
    'a plain index becomes TTL by collMod',
    {},
    () => two.sourceClient.db('app').command({ collMod: 'things', index: { name: 'at', expireAfterSeconds: 3_600 } }),
    neverExpires,
  ],
  [
    'a plain index is replaced by a TTL index of the same name',
    {},
    () => replace({ expireAfterSeconds: 3_600 }),
    neverExpires,
  ],
  [
    'a TTL index is replaced by a plain index of the same name',
    { expireAfterSeconds: 3_600 },
    () => replace({}),
    undefined,
  ],
])(
  '%s: the index on the destination changes too, and no document expires there before the commit',
  async (_, options, change, expected) => {
    await things().createIndex({ at: 1 }, { name: 'at', ...options })
    const catalog = new Catalog()
    const selection = new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null })
    const { source, destination, metadata, context } = two
    const definitions = new DefinitionReconciler({
      ...{ source, catalog, metadata, selection, context },
      destination: new DestinationDefinitions(destination, 'beforeDataCopy'),
    })
    await definitions.reconcile('app', 'all', 'copied')
    await change()
    await definitions.reconcile('app', 'all', 'copied')

    expect(await expiryOnDestination()).toBe(expected)
    const clusters = { source, destination }
    const parts = { clusters, selection, catalog, context, buildIndexes: 'beforeDataCopy' as const }
    for (const stage of ['deferred', 'prepared'] as const) {
      expect(await findDefinitionMismatches(parts, stage)).toEqual([])
    }
  },
)

async function replace(options: { expireAfterSeconds?: number }): Promise<void> {
  await things().dropIndex('at')
  await things().createIndex({ at: 1 }, { name: 'at', ...options })
}
