import { expect, it } from 'vitest'
import { createNamespace, otherNameIn } from '../../src/definitions/create-namespace.ts'
import { listCollections } from '../../src/definitions/listing.ts'
import { optionsWhileDeferred } from '../../src/domain/definition.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import { RawValue } from '../../src/mongo/raw-values.ts'
import { oneSet } from '../mongo/one-set.ts'
import { rawDocument } from '../support/bson-values.ts'

/** tandem creates a database whose name differs from that of an existing database only in case. */

const one = oneSet()

const namesIn = async (database: string): Promise<string[]> =>
  (await one.client.db(database).listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name).sort()

it('a database that is empty after a drop does not prevent a database whose name differs only in case', async () => {
  const before = one.client.db('Shop')
  await before.collection('orders').insertOne({})
  await before.createCollection('view', { viewOn: 'orders', pipeline: [] })
  await before.dropCollection('view')
  await before.dropCollection('orders')
  await createNamespace(one.cluster, 'shop', 'orders', {})
  expect(await namesIn('shop')).toEqual(['orders'])
  expect(await namesIn('Shop')).toEqual([])
})

it('a database with a collection or a view is not dropped, and the error names that database', async () => {
  const before = one.client.db('Store')
  await before.createCollection('view', { viewOn: 'orders', pipeline: [] })
  const create = () => createNamespace(one.cluster, 'store', 'orders', {})
  await expect(create()).rejects.toMatchObject({
    failure: 'DestinationConflict',
    message: expect.stringMatching(
      /the database Store whose name differs only .*\(create on cluster0, store\.orders: DatabaseDifferCase \(13297\): .+\)/,
    ),
  })
  expect(await namesIn('Store')).toEqual(['system.views', 'view'])
})

it('a database of the same sync stays, and the error says what to do on the source', async () => {
  await one.client.db('Depot').createCollection('orders')
  const renamed = one.cluster.openWith(new NamespaceRemap([{ from: { database: 'shop' }, to: { database: 'Depot' } }]))
  try {
    await expect(createNamespace(renamed, 'depot', 'orders', {})).rejects.toMatchObject({
      failure: 'DestinationConflict',
      message: expect.stringMatching(
        /the database Depot whose name differs only .* the name of shop there \(namespaceRemap\)\. Drop or rename depot on the source/,
      ),
    })
  } finally {
    await renamed.close()
  }
})

it("the source's own database stays if a renamed database would get its name in another case", async () => {
  await one.client.db('warehouse').createCollection('orders')
  const renamed = one.cluster.openWith(
    new NamespaceRemap([{ from: { database: 'shop' }, to: { database: 'Warehouse' } }]),
  )
  try {
    const [listed] = await listCollections(renamed, 'warehouse')
    const isOurs = (uuid: string) => uuid === listed?.uuid
    await expect(createNamespace(renamed, 'shop', 'orders', {}, isOurs)).rejects.toMatchObject({
      failure: 'DestinationConflict',
      message: expect.stringMatching(
        /the database warehouse whose name differs only .* the database warehouse of the source, which this sync copied, and namespaceRemap gives shop that name too\. Drop or rename shop on the source/,
      ),
    })
    // A database that is not of this sync is in the way of the same rename.
    await expect(createNamespace(renamed, 'shop', 'orders', {})).rejects.toMatchObject({
      message: expect.stringMatching(/Drop that database on the destination and send resume/),
    })
  } finally {
    await renamed.close()
  }
})

it('a foreign database that has the name of a renamed one is to be dropped on the destination', async () => {
  await one.client.db('market').createCollection('foreign')
  const renamed = one.cluster.openWith(
    new NamespaceRemap([{ from: { database: 'market' }, to: { database: 'bazaar' } }]),
  )
  try {
    await expect(createNamespace(renamed, 'Market', 'orders', {})).rejects.toMatchObject({
      failure: 'DestinationConflict',
      message: expect.stringMatching(
        /creating the database Market .* the database market whose name differs only .*\. Drop that database on the destination/,
      ),
    })
  } finally {
    await renamed.close()
  }
})

it('the other name is read from the message of a replica set and of a config server', () => {
  expect(otherNameIn('db already exists with different case already have: [Shop] trying to create [shop]')).toBe('Shop')
  const differing = "can't have 2 databases that just differ on case  have: Shop want to"
  expect(otherNameIn(`${differing} add: shop`)).toBe('Shop')
  expect(otherNameIn(`${differing} create: shop`)).toBe('Shop')
  expect(otherNameIn('another message')).toBeNull()
})

it('a collection of a source of 8.1 whose record ids are replicated is created without that option', async () => {
  const listed = readFields(
    rawDocument([
      ['validationLevel', 'moderate'],
      ['recordIdsReplicated', true],
    ]),
  )
  const options = Object.fromEntries(optionsWhileDeferred(listed).map(({ name, value }) => [name, new RawValue(value)]))
  await createNamespace(one.cluster, 'replicated', 'things', options)
  const [created] = await one.client.db('replicated').listCollections().toArray()
  expect(created).toMatchObject({ name: 'things', options: { validationLevel: 'moderate' } })
})
