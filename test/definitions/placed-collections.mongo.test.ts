import { afterEach, expect, it } from 'vitest'
import { listClusterCatalog, readIndexesAtOnce, readNames } from '../../src/definitions/list-catalog.ts'
import {
  listCollections,
  listDatabases,
  listIndexes,
  listNamed,
  listViews,
  nameOfCollection,
} from '../../src/definitions/listing.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { underPresentName } from '../../src/mongo/collection-name.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { sizeOf } from '../../src/mongo/sample.ts'
import { toUuid } from '../../src/mongo/uuid.ts'
import { oneSet } from '../mongo/one-set.ts'

/** A destination that has `a.b` of the source as `c.d`, and `a.e` as `a.f`. */

const one = oneSet()
const names = new NamespaceRemap([
  { from: { database: 'a', collection: 'b' }, to: { database: 'c', collection: 'd' } },
  { from: { database: 'a', collection: 'e' }, to: { database: 'a', collection: 'f' } },
])
let destination: Cluster
afterEach(async () => {
  await destination?.close()
  for (const database of ['a', 'c']) await one.client.db(database).dropDatabase()
})

const named = async (database: string): Promise<string[]> =>
  (await listCollections(destination, database)).map(({ name }) => name).sort()

async function seed(): Promise<void> {
  const [a, c] = [one.client.db('a'), one.client.db('c')]
  for (const name of ['f', 'x', 'b']) await a.createCollection(name)
  for (const name of ['d', 'k']) await c.createCollection(name)
  await c.collection('d').createIndex({ n: 1 })
  destination = one.cluster.openWith(names)
}

it('the catalog has the names of the source, and each collection in its database there', async () => {
  await seed()
  expect(await named('a')).toEqual(['b', 'e', 'x'])
  expect((await listNamed(destination, 'a', ['b', 'e', 'y'])).map(({ name }) => name).sort()).toEqual(['b', 'e'])
  expect(await listViews(destination, 'a')).toEqual([])
  // The collection a.b of the destination belongs to nothing that is synced.
  expect(await named('c')).toEqual(['d', 'k'])
  expect((await listDatabases(destination)).filter((name) => ['a', 'c'].includes(name)).sort()).toEqual(['a', 'c'])
  const [b] = await listCollections(destination, 'a', 'b')
  const uuid = b?.uuid ?? ''
  expect(await nameOfCollection(destination, 'a', uuid)).toBe('b')
  expect(await listIndexes(destination, 'a', uuid)).toHaveLength(1)
  expect((await readIndexesAtOnce(destination, 'a'))?.get(uuid)).toHaveLength(1)
  expect((await readNames(destination, ['a'])).get(uuid)).toBe('b')
  const catalog = await listClusterCatalog(destination)
  expect(
    catalog
      .get('a')
      ?.map(({ name }) => name)
      .sort(),
  ).toEqual(['b', 'e', 'x'])
  expect(
    catalog
      .get('c')
      ?.map(({ name }) => name)
      .sort(),
  ).toEqual(['d', 'k'])
})

it('a database whose only collection is placed elsewhere is found there', async () => {
  await one.client.db('c').createCollection('d')
  destination = one.cluster.openWith(names)
  expect((await listDatabases(destination)).sort()).toEqual(expect.arrayContaining(['a', 'c']))
  expect(await named('a')).toEqual(['b'])
  expect(await named('c')).toEqual([])
})

it('commands and cursors go to the collection where it is, and errors have its name on the source', async () => {
  await seed()
  await destination.write('a', { insert: 'b', documents: Array.from({ length: 5 }, (_, _id) => ({ _id })) })
  expect(await one.client.db('c').collection('d').countDocuments()).toBe(5)
  const read = { find: 'b', batchSize: 2 }
  expect(await RawCursor.readAll(destination, 'a', read)).toHaveLength(5)
  const [b] = await listCollections(destination, 'a', 'b')
  const size = await sizeOf(destination, { database: 'a', name: 'b', uuid: b?.uuid ?? '' })
  expect(size).toEqual({ documents: 5, bytes: 5 * 14 })
  const collectionUUID = toUuid(b?.uuid ?? '')
  await underPresentName({ name: 'x' }, (name) =>
    destination.write('a', { collMod: name, collectionUUID, validationLevel: 'off' }),
  )
  // Its UUID is not in the database of `a.x`, so the server reports no present name.
  expect((await listCollections(destination, 'a', 'b'))[0]?.options).toEqual([])
  const [e] = await listCollections(destination, 'a', 'e')
  await underPresentName({ name: 'x' }, (name) =>
    destination.write('a', { collMod: name, collectionUUID: toUuid(e?.uuid ?? ''), validationLevel: 'off' }),
  )
  expect(await one.client.db('a').listCollections({ name: 'f' }).toArray()).toMatchObject([
    { options: { validationLevel: 'off' } },
  ])
  // The name that somebody else has given the collection belongs to another database of the source.
  await one.client.db('c').renameCollection('d', 'lost')
  const seen: string[] = []
  await underPresentName({ name: 'b' }, async (name) => {
    seen.push(name)
    await destination.write('a', { collMod: name, collectionUUID, validationLevel: 'strict' })
  })
  expect(seen).toEqual(['b'])
})

it('a rename that would move a collection to another database is never sent', async () => {
  await seed()
  await expect(destination.write('admin', { renameCollection: 'a.b', to: 'a.y' })).rejects.toThrow(/another database/)
  await destination.write('admin', { renameCollection: 'a.e', to: 'a.y' })
  expect(await named('a')).toEqual(['b', 'x', 'y'])
})
