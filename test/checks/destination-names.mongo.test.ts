import { afterEach, expect, it } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkCollections } from '../../src/checks/collections.ts'
import { checkDatabaseCase } from '../../src/checks/database-case.ts'
import { checkNamespaceRemap } from '../../src/checks/namespace-remap.ts'
import type { Finding } from '../../src/domain/finding.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'
import { isOlderSeries } from '../../src/domain/release.ts'
import type { NamespaceFilter, StartConfiguration } from '../../src/domain/start-request.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { oneSet } from '../mongo/one-set.ts'

/** Names that the source accepts and the destination does not. One replica set is both clusters. */

const one = oneSet()

afterEach(async () => {
  const { databases } = await one.client.db('admin').admin().listDatabases({ nameOnly: true })
  for (const { name } of databases)
    if (!['admin', 'config', 'local'].includes(name)) await one.client.db(name).dropDatabase()
})

type Start = { renames?: Record<string, string>; include?: NamespaceFilter[] }

async function findings(
  check: (clusters: CheckedClusters) => Finding[] | Promise<Finding[]>,
  { renames = {}, include }: Start,
): Promise<Finding[]> {
  const namespaceRemap = Object.entries(renames).map(([from, to]) => ({
    from: { database: from },
    to: { database: to },
  }))
  const configuration = {
    sharding: null,
    namespaceRemap: namespaceRemap.length > 0 ? namespaceRemap : null,
    includeNamespaces: include ?? null,
    excludeNamespaces: null,
  } as unknown as StartConfiguration
  const facts = await readFacts(one.cluster)
  const destination = one.cluster.openWith(new NamespaceRemap(configuration.namespaceRemap))
  try {
    const selection = new Selection(one.cluster, configuration)
    return await check({
      configuration,
      source: one.cluster,
      destination,
      facts: { source: facts, destination: facts },
      selection,
    })
  } finally {
    await destination.close()
  }
}

it('a collection or view whose name would be too long on the destination is refused by its name', async () => {
  const app = one.client.db('app')
  const longest = 'x'.repeat(255 - 'store.'.length)
  const tooLong = 'y'.repeat(255 - 'app.'.length)
  await app.createCollection(longest)
  await app.createCollection(tooLong)
  await app.createCollection(`é${'v'.repeat(248)}`, { viewOn: longest, pipeline: [] })
  // The server's own limit, which the check must not fall short of.
  await one.client.db('store').createCollection(longest)
  await expect(one.client.db('store').createCollection(tooLong)).rejects.toMatchObject({ code: 73 })

  const include = [{ database: 'app' }]
  expect(await findings(checkCollections, { include })).toEqual([])
  const found = await findings(checkCollections, { include, renames: { app: 'store' } })
  expect(found).toMatchObject([
    {
      severity: 'error',
      name: 'UnsupportedCollection',
      namespace: `app.${tooLong}`,
      message: expect.stringMatching(/would be store\.y+ on the destination, which has 257 bytes, .* at most 255/),
    },
    {
      name: 'UnsupportedCollection',
      namespace: expect.stringMatching(/^app\.é/),
      message: expect.stringMatching(/256 bytes/),
    },
  ])
})

it('a database of the destination whose name differs only in case is refused if something would remain in it', async () => {
  await one.client.db('shop').createCollection('orders')
  await one.client.db('Store').createCollection('foreign')
  const include = [{ database: 'shop' }]
  expect(await findings(checkDatabaseCase, { include, renames: { shop: 'depot' } })).toEqual([])
  expect(await findings(checkDatabaseCase, { include, renames: { shop: 'store' } })).toMatchObject([
    {
      severity: 'error',
      name: 'DestinationNotEmpty',
      message: expect.stringMatching(
        /the database Store with foreign, .* only in case from store \(on the source: shop\)/,
      ),
      remedy: expect.stringMatching(/namespaceRemap/),
    },
  ])
  // A database that the source does not have yet.
  expect(
    await findings(checkDatabaseCase, { include: [{ database: 'later' }], renames: { later: 'STORE' } }),
  ).toMatchObject([{ name: 'DestinationNotEmpty', message: expect.stringMatching(/the database Store/) }])
  // The sync replaces or drops what the filters select, so only the other collections of `Store` count.
  const both = [...include, { database: 'Store', collections: ['orders'] }]
  await one.client.db('Store').createCollection('orders')
  expect(await findings(checkDatabaseCase, { include: both, renames: { shop: 'store' } })).toMatchObject([
    { message: expect.stringMatching(/the database Store with foreign/) },
  ])
  await one.client.db('Store').dropCollection('foreign')
  expect(await findings(checkDatabaseCase, { include, renames: { shop: 'store' } })).toMatchObject([
    { message: expect.stringMatching(/the database Store with orders/) },
  ])
  expect(await findings(checkDatabaseCase, { include: both, renames: { shop: 'store' } })).toEqual([])
  // An empty database gives way.
  await one.client.db('Store').dropCollection('orders')
  expect(await findings(checkDatabaseCase, { include, renames: { shop: 'store' } })).toEqual([])
})

it('names that differ in the case of a letter other than A to Z are refused only if the server does not accept both', async () => {
  await one.client.db('École').createCollection('foreign')
  const later = { include: [{ database: 'later' }], renames: { later: 'école' } }
  const { version } = await readFacts(one.cluster)
  if (!isOlderSeries(version, '6.1')) {
    expect(await findings(checkDatabaseCase, later)).toMatchObject([{ name: 'DestinationNotEmpty' }])
    return
  }
  expect(await findings(checkDatabaseCase, later)).toEqual([])
  await one.client.db('école').createCollection('things')
  await one.client.db('shop').createCollection('orders')
  const include = ['école', 'École', 'shop'].map((database) => ({ database }))
  expect(await findings(checkNamespaceRemap, { include, renames: { shop: 'store' } })).toEqual([])
})
