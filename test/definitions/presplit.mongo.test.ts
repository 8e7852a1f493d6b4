import { type Binary, type Document, Long, MaxKey, MinKey, MongoClient, MongoServerError } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { DestinationSharding } from '../../src/definitions/destination-sharding.ts'
import { newEntry } from '../../src/domain/catalog.ts'
import type { Journal, JournalFields } from '../../src/domain/journal.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/**
 * Tests the chunks that a collection gets on the destination before it is copied. One cluster is both source and
 * destination.
 */

type Key = Record<string, 1 | 'hashed'>

let sharded: ShardedCluster
let cluster: Cluster
let client: MongoClient

beforeAll(async () => {
  sharded = await startShardedCluster({ shards: 3 })
  cluster = testCluster(sharded.uri, 'presplit')
  await readFacts(cluster)
  client = new MongoClient(sharded.uri, { promoteValues: false })
})
afterAll(async () => {
  await Promise.all([cluster?.close(), client?.close()])
  await sharded?.stop()
})
beforeEach(async () => {
  uneven.length = 0
  await emptyCluster(client)
  await client.db('admin').command({ enableSharding: 'app', primaryShard: sharded.shards[0]?.name })
})

/**
 * Creates the collection `wanted`, which represents the source, and splits its chunks at these values. All chunks are on the
 * primary shard, unless the first field of the key is hashed.
 */
async function wanted(key: Key, documents: Document[], splitPoints: Document[] = []): Promise<void> {
  await client.db('admin').command({ shardCollection: 'app.wanted', key })
  if (documents.length > 0) await client.db('app').collection('wanted').insertMany(documents)
  for (const middle of splitPoints) await sharded.split('app.wanted', middle)
}

/** The namespaces that the log reports as possibly distributed unevenly. */
const uneven: string[] = []
const journal: Journal = (message, fields) => {
  if (message === 'uneven distribution') uneven.push((fields as JournalFields['uneven distribution']).namespace)
}

async function distribute(
  name: string,
  key: Key,
  sharding = new DestinationSharding(cluster, cluster, { ...testContext(), journal }),
): Promise<void> {
  await client.db('app').createCollection(name)
  const uuidOf = async (collection: string): Promise<string> => {
    const [listed] = await client.db('app').listCollections({ name: collection }).toArray()
    return fromUuid((listed as unknown as { info: { uuid: Binary } }).info.uuid)
  }
  const entry = newEntry('app', { uuid: await uuidOf('wanted'), name }, { options: [], indexes: [] }, 'copied')
  const shardKey = requestedShardKey(Object.entries(key).map(([field, direction]) => ({ [field]: direction })))
  await sharding.distribute(
    Object.assign(entry, { sourceName: 'wanted', destinationUUID: await uuidOf(name), shardKey }),
  )
}

async function chunksOf(name: string): Promise<Document[]> {
  const config = client.db('config')
  const found = await config.collection<{ _id: string; uuid: Binary }>('collections').findOne({ _id: `app.${name}` })
  return await config.collection('chunks').find({ uuid: found?.uuid }).sort({ min: 1 }).toArray()
}

const startsOf = async (name: string): Promise<Document[]> => (await chunksOf(name)).map(({ min }) => min)
const shardsOf = async (name: string): Promise<string> =>
  (await chunksOf(name)).map(({ shard }) => sharded.shards.findIndex((one) => one.name === shard)).join('')

function observedCommands() {
  const write = vi.spyOn(cluster, 'write')
  onTestFinished(() => write.mockRestore())
  return (name: string) => write.mock.calls.filter(([, command]) => name in command).length
}

const numbered = (count: number) => Array.from({ length: count }, (_, k) => ({ k, r: `r${k % 5}`, u: k }))

describe('a collection that the source has sharded by the same key', () => {
  it('gets the chunks of the source, and each shard gets a similar share of the documents', async () => {
    const points = [10, 20, 30, 31, 32, 33, 100, 200].map((k) => ({ k }))
    await wanted({ k: 1 }, numbered(300), points)
    await distribute('things', { k: 1 })
    expect(await startsOf('things')).toEqual(await startsOf('wanted'))
    // 100 documents are below k = 100, and 100 in each of the last two chunks.
    expect(await shardsOf('things')).toBe('000000012')
  })

  it('gets the chunks of the source even if they are empty, also with boundaries that are hashed values', async () => {
    const points = [
      { r: 'r1', u: Long.fromNumber(-5) },
      { r: 'r1', u: Long.fromNumber(5) },
    ]
    await wanted({ r: 1, u: 'hashed' }, [], points)
    await distribute('things', { r: 1, u: 'hashed' })
    expect(await startsOf('things')).toEqual(await startsOf('wanted'))
    expect(await shardsOf('things')).toBe('012')
  })

  it('is not split or moved when it has one small chunk', async () => {
    await wanted({ k: 1 }, numbered(300))
    const sent = observedCommands()
    await distribute('things', { k: 1 })
    expect(await chunksOf('things')).toMatchObject([{ min: { k: new MinKey() }, max: { k: new MaxKey() } }])
    expect([sent('split'), sent('moveChunk')]).toEqual([0, 0])
  })

  it('begins on a different shard than the previous collection', async () => {
    await wanted({ k: 1 }, numbered(100), [{ k: 50 }])
    const sharding = new DestinationSharding(cluster, cluster, testContext())
    for (const name of ['one', 'two', 'three']) await distribute(name, { k: 1 }, sharding)
    expect(await Promise.all(['one', 'two', 'three'].map(shardsOf))).toEqual(['01', '12', '20'])
  })
})

it('ignores the error without a code that a mongos returns for a split at an existing boundary', async () => {
  await wanted({ k: 1 }, numbered(100), [{ k: 50 }])
  const write = cluster.write.bind(cluster)
  const refusing = vi.spyOn(cluster, 'write').mockImplementation(async (database, command, options) => {
    if ('split' in command) throw new MongoServerError({ message: 'new split key is a boundary key of existing chunk' })
    return await write(database, command, options)
  })
  onTestFinished(() => refusing.mockRestore())
  await distribute('things', { k: 1 })
  expect(await chunksOf('things')).toHaveLength(1)
})

/** Makes the first `failures` commands of this name fail. */
function failing(name: string, failures: number, error = { message: 'StaleConfig', code: 13388 }): void {
  const write = cluster.write.bind(cluster)
  let left = failures
  const spy = vi.spyOn(cluster, 'write').mockImplementation(async (database, command, options) => {
    if (name in command && left-- > 0) throw new MongoServerError(error)
    return await write(database, command, options)
  })
  onTestFinished(() => spy.mockRestore())
}

describe('a refused move', () => {
  it('is repeated when an election has interrupted it, whose error a mongos returns as OperationFailed', async () => {
    await wanted({ k: 1 }, numbered(100), [{ k: 50 }])
    failing('moveChunk', 2, {
      message: 'Data transfer error: migrate failed: InterruptedDueToReplStateChange: operation was interrupted',
      code: 96,
    })
    await distribute('things', { k: 1 })
    expect([await shardsOf('things'), uneven]).toEqual(['01', []])
  })

  it('is logged when the server refuses it for another reason, and the other chunks are distributed', async () => {
    await wanted({ k: 1 }, numbered(100), [{ k: 30 }, { k: 60 }])
    failing('moveChunk', 1, { message: 'the shard does not accept chunks', code: 20 })
    await distribute('things', { k: 1 })
    expect([await shardsOf('things'), uneven]).toEqual(['002', ['app.things']])
  })
})

describe('a transient error of the destination', () => {
  it.each(['split', 'moveChunk'])('makes tandem retry a %s', async (name) => {
    await wanted({ k: 1 }, numbered(100), [{ k: 50 }])
    failing(name, 2)
    await distribute('things', { k: 1 })
    expect([await shardsOf('things'), uneven]).toEqual(['01', []])
  })

  it('that persists stops only the distribution of that collection', async () => {
    await wanted({ k: 1 }, numbered(100), [{ k: 30 }, { k: 60 }])
    failing('moveChunk', Number.POSITIVE_INFINITY)
    const sent = observedCommands()
    await distribute('things', { k: 1 })
    expect([await shardsOf('things'), uneven, sent('moveChunk')]).toEqual(['000', ['app.things'], 12])
  })
})

describe('a sample of the source', () => {
  const sampled = (read: { mock: { calls: unknown[][] } }) =>
    read.mock.calls.map(([, command]) => (command as Document)['pipeline']?.[0]?.$sample?.size).filter(Boolean)

  it.each([
    ['is refused', new MongoServerError({ message: 'not allowed', code: 2 })],
    ['takes too long on the server', new MongoServerError({ message: 'too long', code: 50 })],
    ['takes too long', new DOMException('too long', 'TimeoutError')],
  ])('that %s is skipped, and the boundaries of the source are used', async (_what, error) => {
    await wanted({ k: 1 }, numbered(300), [{ k: 10 }, { k: 20 }])
    const read = cluster.read.bind(cluster)
    const spy = vi.spyOn(cluster, 'read').mockImplementation(async (database, command, options) => {
      if (command['pipeline']?.[0]?.$sample) throw error
      return await read(database, command, options)
    })
    onTestFinished(() => spy.mockRestore())
    await distribute('things', { k: 1 })
    expect([await startsOf('things'), uneven]).toEqual([await startsOf('wanted'), ['app.things']])
  })

  it('of a few large documents is so small that no shard reads all of its documents', async () => {
    await wanted({ k: 1 }, numbered(300))
    const read = cluster.read.bind(cluster)
    const spy = vi.spyOn(cluster, 'read').mockImplementation(async (database, command, options) => {
      const reply = await read(database, command, options)
      if (command['pipeline']?.[0]?.$collStats) reply['cursor'].firstBatch = [{ a: 160e9, b: 12_000 }]
      return reply
    })
    onTestFinished(() => spy.mockRestore())
    await distribute('things', { k: 1 })
    expect([sampled(spy), uneven]).toEqual([[100], []])
    expect((await chunksOf('things')).length).toBeGreaterThan(60)
  })
})

describe('a collection of terabytes', () => {
  /** Makes the server report this size for the collection. */
  function largeCollection(bytes: number): void {
    const read = cluster.read.bind(cluster)
    const reading = vi.spyOn(cluster, 'read').mockImplementation(async (database, command, options) => {
      const reply = await read(database, command, options)
      if (command['pipeline']?.[0]?.$collStats) reply['cursor'].firstBatch = [{ a: bytes, b: 1e9 }]
      return reply
    })
    onTestFinished(() => reading.mockRestore())
  }

  it('gets 90 chunks for each shard, which are moved together', async () => {
    await wanted({ k: 1 }, numbered(2000), [{ k: 1000 }])
    largeCollection(10e12)
    const sent = observedCommands()
    await distribute('things', { k: 1 })
    const chunks = await chunksOf('things')
    expect(chunks).toHaveLength(270)
    expect(await shardsOf('things')).toMatch(/^0{85,95}1{85,95}2{85,95}$/)
    expect(sent('moveChunk')).toBeLessThanOrEqual(3)
  })

  it('gets as many chunks when its key is hashed', async () => {
    await wanted({ k: 'hashed' }, numbered(2000))
    largeCollection(10e12)
    await distribute('things', { k: 'hashed' })
    const chunks = await chunksOf('things')
    expect(chunks.length).toBeGreaterThanOrEqual(250)
    expect(chunks.length).toBeLessThanOrEqual(270)
    const counts = sharded.shards.map(({ name }) => chunks.filter(({ shard }) => shard === name).length)
    for (const count of counts) expect(count).toBeGreaterThanOrEqual(80)
  })
})
