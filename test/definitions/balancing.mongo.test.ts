import { type Binary, type Document, MongoClient, MongoNetworkError, MongoServerError } from 'mongodb'
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest'
import { checkBalancing } from '../../src/checks/balancing.ts'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { copyBalancing } from '../../src/definitions/balancing.ts'
import { type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster } from '../mongo/clusters.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/** Tests how tandem copies the balancer's settings of single collections, which `sh.disableBalancing` and other commands store. */

interface Setting {
  _id: string
  uuid: Binary
  noBalance?: boolean
  permitMigrations?: boolean
}

let from: ShardedCluster
let to: ShardedCluster
let source: Cluster
let destination: Cluster
let sourceClient: MongoClient
let destinationClient: MongoClient
const names = ['left', 'balanced', 'again']
let entries: CatalogEntry[]
const notUnique = vi.fn()

const settings = (client: MongoClient) => client.db('config').collection<Setting>('collections')
const settingOf = (client: MongoClient, name: string) => settings(client).findOne({ _id: `app.${name}` })
/** Stores `noBalance` as `sh.disableBalancing` and `sh.enableBalancing` do. */
const setNoBalance = (client: MongoClient, name: string, noBalance: boolean) =>
  settings(client).updateOne({ _id: `app.${name}` }, { $set: { noBalance } }, { writeConcern: { w: 'majority' } })

beforeAll(async () => {
  ;[from, to] = await Promise.all([startShardedCluster({ shards: 1 }), startShardedCluster({ shards: 1 })])
  source = testCluster(from.uri, 'balancing')
  destination = testCluster(to.uri, 'balancing')
  await Promise.all([readFacts(source), readFacts(destination)])
  sourceClient = new MongoClient(from.uri)
  destinationClient = new MongoClient(to.uri)
  for (const client of [sourceClient, destinationClient])
    for (const name of names) await client.db('admin').command({ shardCollection: `app.${name}`, key: { k: 1 } })
  entries = await Promise.all(
    names.map(async (name) => {
      const uuidOf = async (client: MongoClient) => fromUuid((await settingOf(client, name))?.uuid as Binary)
      const entry = newEntry('app', { uuid: await uuidOf(sourceClient), name }, { options: [], indexes: [] }, 'copied')
      const shardKey = requestedShardKey([{ k: 1 }])
      return Object.assign(entry, { destinationUUID: await uuidOf(destinationClient), shardKey })
    }),
  )
})
afterAll(async () => {
  await Promise.all([source?.close(), destination?.close(), sourceClient?.close(), destinationClient?.close()])
  await Promise.all([from?.stop(), to?.stop()])
})

it('noBalance is set and unset as on the source, but not on a collection that was created again', async () => {
  await setNoBalance(sourceClient, 'left', true)
  await setNoBalance(destinationClient, 'again', true)
  const refused = vi.fn()
  await copyBalancing(source, destination, entries, { refused, notUnique })
  const noBalance = () =>
    Promise.all(names.map(async (name) => (await settingOf(destinationClient, name))?.noBalance ?? false))
  expect(await noBalance()).toEqual([true, false, false])
  await setNoBalance(sourceClient, 'left', false)
  await setNoBalance(sourceClient, 'balanced', true)
  const [left, , again] = entries as [CatalogEntry, CatalogEntry, CatalogEntry]
  const recreated = { ...(entries[1] as CatalogEntry), destinationUUID: again.destinationUUID }
  await copyBalancing(source, destination, [left, recreated, again], { refused, notUnique })
  expect(await noBalance()).toEqual([false, false, false])
  expect(refused).not.toHaveBeenCalled()
})

it('moves of chunks are allowed or forbidden as on the source', async () => {
  const allow = (client: MongoClient, name: string, allowMigrations: boolean) =>
    client.db('admin').command({ setAllowMigrations: `app.${name}`, allowMigrations })
  const permitted = () =>
    Promise.all(names.map(async (name) => (await settingOf(destinationClient, name))?.permitMigrations ?? true))
  const refused = vi.fn()
  await allow(sourceClient, 'left', false)
  await allow(destinationClient, 'again', false)
  await copyBalancing(source, destination, entries, { refused, notUnique })
  expect(await permitted()).toEqual([false, true, true])
  await allow(sourceClient, 'left', true)
  await copyBalancing(source, destination, entries, { refused, notUnique })
  expect(await permitted()).toEqual([true, true, true])
  expect(refused).not.toHaveBeenCalled()
})

it('the log names a collection whose shard key is unique only on the source', async () => {
  const setUnique = (client: MongoClient, unique: boolean) =>
    settings(client).updateOne({ _id: 'app.left' }, { $set: { unique } }, { writeConcern: { w: 'majority' } })
  await setUnique(sourceClient, true)
  onTestFinished(
    async () => void (await Promise.all([sourceClient, destinationClient].map((client) => setUnique(client, false)))),
  )
  await copyBalancing(source, destination, entries, { refused: vi.fn(), notUnique })
  await setUnique(destinationClient, true)
  await copyBalancing(source, destination, entries, { refused: vi.fn(), notUnique })
  expect(notUnique.mock.calls).toEqual([['app.left']])
})

it('if noBalance of one collection is refused, tandem reports that collection, and sets noBalance of the others', async () => {
  for (const name of ['left', 'balanced']) {
    await setNoBalance(sourceClient, name, true)
    await setNoBalance(destinationClient, name, false)
  }
  const write = destination.write.bind(destination)
  const refusing = vi.spyOn(destination, 'write').mockImplementation(async (database, command, options) => {
    const { updates } = command as { updates: Document[] }
    const reply = await write(database, { ...command, updates: updates.slice(1) }, options)
    return { ...reply, writeErrors: [{ index: 0, code: 13, errmsg: 'not allowed' }] }
  })
  onTestFinished(() => refusing.mockRestore())
  const refused = vi.fn()
  await copyBalancing(source, destination, entries, { refused, notUnique })
  expect(refused.mock.calls).toEqual([['app.left', 'not allowed']])
  expect((await settingOf(destinationClient, 'balanced'))?.noBalance).toBe(true)
})

it.each([
  ['the command is refused', new MongoServerError({ message: 'not allowed', code: 13 })],
  ['the config servers do not answer', new MongoNetworkError('gone')],
])('if %s, tandem reports all collections and does not try again', async (_what, error) => {
  for (const name of names) await setNoBalance(sourceClient, name, true)
  for (const name of names) await setNoBalance(destinationClient, name, false)
  const failing = vi.spyOn(destination, 'write').mockRejectedValue(error)
  onTestFinished(() => failing.mockRestore())
  const refused = vi.fn()
  await copyBalancing(source, destination, entries, { refused, notUnique })
  expect(failing).toHaveBeenCalledTimes(1)
  expect(refused.mock.calls.map(([name]) => name)).toEqual(names.map((name) => `app.${name}`))
})

it('if the config servers do not answer, no further command about migrations is sent, and all collections are reported', async () => {
  const allow = (allowMigrations: boolean) =>
    Promise.all(
      names.map((name) =>
        sourceClient
          .db('admin')
          .command({ setAllowMigrations: `app.${name}`, allowMigrations, writeConcern: { w: 'majority' } }),
      ),
    )
  for (const client of [sourceClient, destinationClient])
    for (const name of names) await setNoBalance(client, name, false)
  await allow(false)
  onTestFinished(async () => void (await allow(true)))
  const failing = vi.spyOn(destination, 'write').mockRejectedValue(new MongoNetworkError('gone'))
  onTestFinished(() => failing.mockRestore())
  const refused = vi.fn()
  const many = Array.from({ length: 10 }, () => entries).flat()
  await copyBalancing(source, destination, many, { refused, notUnique })
  expect(failing.mock.calls.length).toBeLessThanOrEqual(8)
  expect(refused).toHaveBeenCalledTimes(many.length)
})

it('`check` lists the settings that are not copied', async () => {
  const checked = (includeNamespaces: { database: string }[] | null, of = { authenticated: false }) => {
    const selection = new Selection(source, { includeNamespaces, excludeNamespaces: null })
    const facts = { destination: { ...of, privileges: [] } } as unknown as CheckedClusters['facts']
    return checkBalancing({ source, destination, selection, facts } as CheckedClusters)
  }
  for (const name of names) await setNoBalance(sourceClient, name, name === 'left')
  expect(await checked(null)).toEqual([])
  // This user has no privilege to write to config.collections.
  expect(await checked(null, { authenticated: true })).toMatchObject([
    {
      severity: 'warning',
      name: 'BalancerSettingsNotCopied',
      message: expect.stringMatching(/: app\.left \(noBalance\)$/),
      remedy: expect.stringContaining(
        'to have noBalance copied, grant update on config.collections on the destination',
      ),
    },
  ])
  await sourceClient.db('admin').command({ configureCollectionBalancing: 'app.again', chunkSize: 64 })
  expect(await checked(null)).toMatchObject([
    {
      severity: 'warning',
      name: 'BalancerSettingsNotCopied',
      message: expect.stringMatching(/app\.again \(maxChunkSizeBytes\)$/),
    },
  ])
  expect(await checked([{ database: 'other' }])).toEqual([])
})
