import type { Binary } from 'mongodb'
import { beforeEach, expect, it } from 'vitest'
import { findSilentChanges } from '../../src/definitions/silent-definitions.ts'
import { Catalog, newEntry } from '../../src/domain/catalog.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { oneSet } from '../mongo/one-set.ts'

const one = oneSet()
let catalog: Catalog

async function changes(): Promise<[string, string][]> {
  const selection = new Selection(one.cluster, {
    includeNamespaces: [{ database: 'app', collections: ['things', 'others'] }],
    excludeNamespaces: null,
  })
  const { changed } = await findSilentChanges(one.cluster, catalog, selection, null)
  return [...changed]
}

beforeEach(async () => {
  const app = one.client.db('app')
  await app.dropDatabase()
  await app.createCollection('things')
  const [found] = await app.listCollections({ name: 'things' }).toArray()
  const uuid = fromUuid((found as unknown as { info: { uuid: Binary } }).info.uuid)
  catalog = new Catalog()
  catalog.add(newEntry('app', { uuid, name: 'things' }, { options: [], indexes: [] }, 'copied'))
})

it('no change is reported while nothing has changed', async () => {
  expect(await changes()).toEqual([])
})

it.each([
  ['a drop', () => one.client.db('app').dropCollection('things'), 'app.things was dropped'],
  ['a rename', () => one.client.db('app').renameCollection('things', 'others'), 'app.things was renamed'],
  [
    'a rename to a name that the filters do not select',
    () => one.client.db('app').renameCollection('things', 'hidden'),
    'app.things was renamed to a name that the filters do not select',
  ],
])('%s is reported', async (_what, change, expected) => {
  await change()
  expect(await changes()).toEqual([['app', expected]])
})
