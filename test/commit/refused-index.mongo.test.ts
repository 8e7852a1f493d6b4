import { beforeEach, expect, it } from 'vitest'
import { SharedCatalog, type SharedCatalogParts } from '../../src/apply/shared-catalog.ts'
import { type CommitParts, prepareToWrite } from '../../src/commit/finish-commit.ts'
import { DeferredOptions } from '../../src/definitions/deferred-options.ts'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { leaveFilter } from '../../src/definitions/leave-filter.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'

/**
 * The destination refuses an index of a collection. The commit fails only if that collection is still in the sync by then.
 */

let two: TwoClusters
let shared: SharedCatalog
let parts: CommitParts
emptiedClusters((clusters) => {
  two = clusters
})

const source = () => two.sourceClient.db('app')
const destination = () => two.destinationClient.db('app')
const selecting = (...collections: string[]) =>
  new Selection(two.source, { includeNamespaces: [{ database: 'app', collections }], excludeNamespaces: null })
const refusedEntry = () => parts.catalog.entries().find(({ name }) => name === 'refused') as CatalogEntry

function commitParts(): CommitParts {
  const { source, destination, metadata, context } = two
  const selection = selecting('kept', 'refused')
  shared = new SharedCatalog({ source, destination, metadata, selection, context } as unknown as SharedCatalogParts)
  const { catalog } = shared
  const destinationDefinitions = new DestinationDefinitions(destination, 'beforeDataCopy')
  const { writer } = two.dependencies
  const definitions = new DefinitionReconciler({
    ...{ source, catalog, metadata, selection, context },
    destination: destinationDefinitions,
  })
  return {
    ...{ source, destination, selection, catalog, definitions, destinationDefinitions, writer, context },
    deferredOptions: new DeferredOptions(destination, context),
    reversePosition: null,
    restoreBalancer: async () => {},
    atStep: () => {},
  }
}

/** The collection `refused` has an index that only the source can build, because the destination's document is older. */
beforeEach(async () => {
  parts = commitParts()
  await source().createCollection('kept')
  await source().createCollection('refused')
  await parts.definitions.reconcile('app', 'all', 'copied')
  await destination()
    .collection('refused')
    .insertOne({ x: [1, 2], y: [1, 2] })
  await source().collection('refused').createIndex({ x: 1, y: 1 })
  await parts.definitions.reconcile('app', 'all', 'copied')
  expect(refusedEntry().refusedIndexes).toEqual(['x_1_y_1'])
})

const leave = async (drops: boolean): Promise<void> => {
  const selection = selecting('kept')
  await leaveFilter({ ...parts, selection, metadata: two.metadata }, [refusedEntry()], drops)
  parts = { ...parts, selection }
}

it('fails with IndexBuildFailed while the collection is in the sync', async () => {
  await expect(prepareToWrite(parts)).rejects.toMatchObject({
    failure: 'IndexBuildFailed',
    message: expect.stringMatching(/cannot build index x_1_y_1 of app\.refused/),
  })
})

it.each<[how: string, leaves: () => Promise<unknown>]>([
  [
    'the source has dropped it',
    async () => {
      await source().dropCollection('refused')
      await parts.definitions.reconcile('app', 'all', 'copied')
    },
  ],
  [
    'the source has dropped it and another instance, as the coordinator, has followed',
    async () => {
      await source().dropCollection('refused')
      await destination().dropCollection('refused')
      await two.metadata.collections.remove(refusedEntry().uuid)
      await shared.reload()
    },
  ],
  ['the filters no longer select it, and it is dropped', () => leave(true)],
  ['the filters no longer select it, and it stays', () => leave(false)],
])('succeeds when %s', async (_how, leaves) => {
  await leaves()
  expect(parts.catalog.entries().map(({ name }) => name)).toEqual(['kept'])
  await prepareToWrite(parts)
})
