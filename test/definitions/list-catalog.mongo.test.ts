import { readFileSync } from 'node:fs'
import path from 'node:path'
import { type Db, Double } from 'mongodb'
import { beforeEach, expect, it } from 'vitest'
import { type ClusterCatalog, listClusterCatalog, readDefinitionsOf } from '../../src/definitions/list-catalog.ts'
import { listDatabases } from '../../src/definitions/listing.ts'
import { indexName } from '../../src/domain/definition.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'
import { buildDocument, type RawFields } from '../../src/domain/raw-bson.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { testCluster } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'

/** `$listCatalog` returns the same definitions as listCollections and listIndexes. */

const one = oneSet({ auth: true })
const app = (): Db => one.client.db('app')

beforeEach(async () => {
  await app().dropDatabase()
})

async function createEveryKind(db: Db): Promise<void> {
  await db.createCollection('capped', { capped: true, size: 100_000, max: 3 })
  await db.createCollection('clustered', { clusteredIndex: { key: { _id: 1 }, unique: true, name: 'key' } })
  await db.collection('clustered').createIndex({ a: 1 })
  await db.createCollection('clustered expiring', {
    ...{ clusteredIndex: { key: { _id: 1 }, unique: true }, expireAfterSeconds: 100 },
  })
  await db.createCollection('collated', { collation: { locale: 'de', strength: 1 } })
  await db.collection('collated').createIndexes([{ key: { a: 1 } }, { key: { b: 1 }, collation: { locale: 'simple' } }])
  await db.createCollection('validated', { validator: { a: { $gt: 5 } }, validationLevel: 'moderate' })
  await db.command({ collMod: 'validated', validationAction: 'warn', changeStreamPreAndPostImages: { enabled: true } })
  await db.createCollection('defaulted', { indexOptionDefaults: { storageEngine: { wiredTiger: {} } } })
  await db.createCollection('measured', { timeseries: { timeField: 't', metaField: 'm' }, expireAfterSeconds: 50 })
  await db.createCollection('view', { viewOn: 'things', pipeline: [{ $match: { a: 1 } }] })
  await db.createCollection('collated view', { viewOn: 'things', pipeline: [], collation: { locale: 'de' } })
  await db.createCollection('simple view', { viewOn: 'things', pipeline: [], collation: { locale: 'simple' } })
  await db.command({ collMod: 'view', viewOn: 'other', pipeline: [] })
  await db.collection('things').createIndexes([
    { key: { u: 1 }, name: 'u', unique: true },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 3_600 },
    { key: { later: 1 }, name: 'later', background: true },
    { key: { h: -1 }, name: 'h', hidden: true, sparse: true },
    { key: { text: 'text', other: 'text' }, name: 'text', weights: { text: 3 }, default_language: 'german' },
    { key: { g: '2dsphere' }, name: 'g' },
    { key: { flat: '2d' }, name: 'flat', bits: 20, min: -50, max: 50 },
    { key: { hash: 'hashed' }, name: 'hash' },
    { key: { '$**': 1 }, name: 'wild', wildcardProjection: { a: 1, _id: 0 } },
    { key: { p: 1, q: -1 }, name: 'p', partialFilterExpression: { p: { $gt: 5 } }, unique: true },
    { key: { c: 1 }, name: 'c', collation: { locale: 'fr', strength: 2 } },
    { key: { n: 1 }, name: 'n' },
    { key: { s: 1 }, name: 's', storageEngine: { wiredTiger: { configString: 'prefix_compression=false' } } },
  ])
  // The driver does not accept numbers as flags, but the server does.
  await db.command({ createIndexes: 'things', indexes: [{ key: { t: 1 }, name: 't', unique: 1, sparse: 2.5 }] })
  await db.command({
    createIndexes: 'things',
    indexes: [{ key: { d: 1 }, name: 'd', expireAfterSeconds: new Double(4) }],
  })
  await db.command({ collMod: 'things', index: { name: 'n', prepareUnique: true } })
  await db.command({ collMod: 'things', index: { name: 'later', expireAfterSeconds: 100 } })
}

/** Runs `work` with a connection for which tandem does not use `$listCatalog`. */
async function withoutStage<T>(work: (cluster: Cluster) => Promise<T>): Promise<T> {
  const cluster = testCluster(one.set.uri)
  cluster.before6 = true
  try {
    return await work(cluster)
  } finally {
    await cluster.close()
  }
}

const sorted = (fields: RawFields): RawFields => [...fields].sort((a, b) => (a.name < b.name ? -1 : 1))
const hex = (fields: RawFields): string => buildDocument(fields).toString('hex')

/** Sorts the fields of each index, because the catalog's own documents have them in another order. */
function shown(catalog: ClusterCatalog) {
  const entries = [...catalog].flatMap(([database, listed]) =>
    listed.map(({ name, type, uuid, options, indexes }) => ({
      ...{ name: `${database}.${name}`, uuid },
      // tandem refuses or skips a time-series collection, so it needs only the name and the type. The server generates the other
      // fields of the listing.
      ...(type === 'timeseries' ? { type } : { type, options: hex(options) }),
      indexes: indexes.map((index) => [indexName(index), hex(sorted(index))]),
    })),
  )
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1))
}

it('$listCatalog and the list commands return the same definition for every kind of collection, index and view', async () => {
  await createEveryKind(app())
  await createEveryKind(one.client.db('app2'))
  const staged = shown(await listClusterCatalog(one.cluster))
  expect(staged.length).toBeGreaterThan(20)
  expect(staged).toEqual(shown(await withoutStage(listClusterCatalog)))
})

it('databases have their names on the source, and their collections are not confused with those of other databases', async () => {
  await one.client.db('app2').dropDatabase()
  for (const [database, name] of [
    ['app', 'of nobody'],
    ['app2', 'of app'],
    ['app3', 'of app3'],
  ] as const)
    await one.client.db(database).createCollection(name)
  const names = new NamespaceRemap([{ from: { database: 'app' }, to: { database: 'app2' } }])
  const read = async (cluster: Cluster): Promise<string[]> => {
    const named = cluster.openWith(names)
    try {
      const catalog = await listClusterCatalog(named)
      const listed = (await listDatabases(named)).filter((name) => name.startsWith('app'))
      expect(listed.sort()).toEqual(['app', 'app2', 'app3'])
      return [...catalog].flatMap(([database, all]) => all.map(({ name }) => `${database}: ${name}`)).sort()
    } finally {
      await named.close()
    }
  }
  const expected = ['app2: of nobody', 'app3: of app3', 'app: of app']
  expect(await read(one.cluster)).toEqual(expected)
  expect(await withoutStage(read)).toEqual(expected)
  await Promise.all(['app2', 'app3'].map((database) => one.client.db(database).dropDatabase()))
})

it('only selected databases are read, including a database that has only system collections', async () => {
  await app().createCollection('view', { viewOn: 'things', pipeline: [] })
  await app().dropCollection('view')
  const interesting = (cluster: Cluster) =>
    listClusterCatalog(cluster, async (all) => all.filter((name) => name === 'app'))
  expect([...(await interesting(one.cluster))]).toEqual([['app', []]])
  expect([...(await withoutStage(interesting))]).toEqual([['app', []]])
})

it('an index that is still being built is left out', async () => {
  await app()
    .collection('built')
    .insertMany([{ n: 1 }, { n: 2 }])
  await app().collection('built').createIndex({ ready: 1 })
  const names = async () =>
    (await listClusterCatalog(one.cluster)).get('app')?.map(({ indexes }) => indexes.map(indexName))
  await using building = await failPoint(one.client, 'hangAfterStartingIndexBuild', {})
  const built = app().collection('built').createIndex({ n: 1 })
  await building.reached()
  expect(await names()).toEqual([['ready_1']])
  await building.release()
  await built
  expect(await names()).toEqual([['ready_1', 'n_1']])
})

it.each([3, 40])(
  'the definitions of %i collections are read by UUID, without those that were dropped',
  async (count) => {
    for (let at = 0; at < count; at++) await app().collection(`c${at}`).createIndex({ a: 1 })
    const wanted =
      (await listClusterCatalog(one.cluster)).get('app')?.map(({ uuid }) => ({ database: 'app', uuid })) ?? []
    await app().dropCollection('c1')
    const read = await readDefinitionsOf(one.cluster, wanted.slice(0, -1))
    expect(read.size).toBe(count - 2)
    expect([...read.values()].every(({ indexes }) => indexes.map(indexName).join() === 'a_1')).toBe(true)
  },
)

it('with a user without the privileges for `$listCatalog`, tandem reads the same definitions by listCollections and listIndexes', async () => {
  await createEveryKind(app())
  const everywhere = { resource: { db: '', collection: '' }, actions: ['listCollections', 'listIndexes'] }
  const privileges = [everywhere, { resource: { cluster: true }, actions: ['listDatabases', 'useUUID'] }]
  const uri = await one.set.createUser('listing', 'secret', [{ role: 'listing', privileges }])
  const cluster = testCluster(uri)
  const read = await listClusterCatalog(cluster).finally(() => cluster.close())
  expect(shown(read)).toEqual(shown(await listClusterCatalog(one.cluster)))
})

it('a user with the optional role of docs/privileges.md can use `$listCatalog`', async () => {
  const page = readFileSync(path.join(repositoryRoot, 'docs/privileges.md'), 'utf8')
  const roles = [...page.matchAll(/^db\.adminCommand\((\{\n[\s\S]*?\n\})\)$/gm)].map(([, text]) =>
    JSON.parse(text ?? ''),
  )
  const granted = ['tandemSource', 'tandemCatalog'].map((name) => {
    const { createRole: role, privileges } = roles.find(({ createRole }) => createRole === name)
    return { role, privileges }
  })
  await createEveryKind(app())
  const cluster = testCluster(await one.set.createUser('staging', 'secret', granted), 'staging')
  const data = { failCommands: ['listIndexes'], errorCode: 13, appName: 'staging' }
  await using _ = await failPoint(one.client, 'failCommand', data)
  const read = await listClusterCatalog(cluster).finally(() => cluster.close())
  expect(shown(read)).toEqual(shown(await listClusterCatalog(one.cluster)))
})
