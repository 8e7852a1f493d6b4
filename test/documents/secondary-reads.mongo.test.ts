import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openBulkRange, openRange } from '../../src/documents/read-documents.ts'
import type { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'
import { until } from '../support/until.ts'

/** Bulk reads can use the secondaries of a replica set (`--copyReadPreference secondaryPreferred`). */

const one = oneSet({ members: 3 })
let members: MongoClient[] = []
let secondaries: MongoClient[] = []
const everything = { from: null, to: null }
const documents = 2_000

beforeAll(async () => {
  // By default the driver does not use a secondary that answers 15 ms later than the other, which happens on a busy machine.
  await one.cluster.close()
  one.cluster = testCluster(`${one.set.uri}&localThresholdMS=60000`)
  members = await Promise.all(one.set.uris.map((uri) => MongoClient.connect(uri)))
  const isPrimary = await Promise.all(
    members.map(async (member) => (await member.db('admin').command({ hello: 1 }))['isWritablePrimary'] as boolean),
  )
  secondaries = members.filter((_, at) => !isPrimary[at])
  expect(secondaries).toHaveLength(2)
  one.cluster.copyReadPreference = 'secondaryPreferred'
  await mirrorReads(0)
  // While the driver knows no secondary, `secondaryPreferred` selects the primary.
  let known = 0
  one.cluster.client.on('topologyDescriptionChanged', ({ newDescription }) => {
    known = [...newDescription.servers.values()].filter(({ type }) => type === 'RSSecondary').length
  })
  await one.cluster.read('admin', { hello: 1 })
  await until('the driver knows both secondaries', async () => expect(known).toBe(2))
})
afterAll(async () => {
  await mirrorReads(0.01) // the server's default
  await Promise.all(members.map((member) => member.close()))
})

/**
 * Sets the share of finds that the primary also sends to its secondaries to warm their caches. The secondaries would count these
 * finds as answered. https://www.mongodb.com/docs/manual/reference/parameters/#mongodb-parameter-param.mirrorReads
 */
async function mirrorReads(samplingRate: number): Promise<void> {
  const command = { setParameter: 1, mirrorReads: { samplingRate } }
  await Promise.all(members.map((member) => member.db('admin').command(command)))
}

async function seed(name: string) {
  const rows = Array.from({ length: documents }, (_, _id) => ({ _id, filling: 'x'.repeat(200) }))
  await one.client.db('app').collection<{ _id: number }>(name).insertMany(rows)
  const [listed] = await one.client.db('app').listCollections({ name }).toArray()
  await one.cluster.read('admin', { hello: 1 })
  return { database: 'app', name, uuid: fromUuid((listed as Document)['info'].uuid) }
}

async function count(cursor: RawCursor): Promise<number> {
  let found = 0
  for (let batch = await cursor.next(); batch; batch = await cursor.next({ batchSize: 300 })) {
    found += batch.documents.length
  }
  await cursor.close()
  return found
}

/** Returns the numbers of commands on the collection that these members have answered, by their own counters. */
async function answered(of: readonly MongoClient[], name: string): Promise<{ finds: number; getMores: number }> {
  const sum = { finds: 0, getMores: 0 }
  for (const member of of) {
    const { totals } = await member.db('admin').command({ top: 1 })
    sum.finds += totals[`app.${name}`]?.queries.count ?? 0
    sum.getMores += totals[`app.${name}`]?.getmore.count ?? 0
  }
  return sum
}

it('a range is read to its end on the secondary that opened the cursor, and the primary answers none of these commands', async () => {
  const collection = await seed('things')
  const primary = members.filter((member) => !secondaries.includes(member))
  const before = await answered(primary, 'things')
  const open = () => openBulkRange(one.cluster, collection, everything, one.cluster.latest, 100)
  expect(await Promise.all(Array.from({ length: 12 }, async () => count(await open())))).toEqual(
    Array(12).fill(documents),
  )
  expect(await answered(primary, 'things')).toEqual(before)
  const { finds, getMores } = await answered(secondaries, 'things')
  expect(finds).toBeGreaterThanOrEqual(12)
  expect(getMores).toBeGreaterThanOrEqual(12 * 6)
  const each = await Promise.all(secondaries.map((member) => answered([member], 'things')))
  expect(Math.min(...each.map((counted) => counted.finds))).toBeGreaterThan(0)
  for (const member of members) {
    const idle = [
      { $currentOp: { idleCursors: true, allUsers: true } },
      { $match: { type: 'idleCursor', ns: 'app.things' } },
    ]
    expect(await member.db('admin').aggregate(idle).toArray()).toEqual([])
  }
})

it('a secondary that is behind answers only once it has all changes of the source that this process has observed', async () => {
  const collection = await seed('behind')
  const begin = one.cluster.latest
  const [behind] = secondaries as [MongoClient]
  const stopped = await failPoint(behind, 'rsSyncApplyStop', {})
  try {
    await one.client.db('app').collection<{ _id: number }>('behind').insertOne({ _id: documents })
    await one.cluster.read('admin', { hello: 1 })
    let answers = 0
    // The time that the caller passes in is older than the insert.
    const reads = Array.from({ length: 16 }, async () => {
      const found = await count(await openBulkRange(one.cluster, collection, everything, begin, 100))
      answers += 1
      return found
    })
    const all = Promise.all(reads)
    all.catch(() => {})
    await expect.poll(() => waiting(behind, 'behind'), { timeout: 20_000, interval: 20 }).toBeGreaterThan(0)
    expect(answers).toBeLessThan(16)
    await stopped.release()
    expect(await all).toEqual(Array(16).fill(documents + 1))
  } finally {
    await stopped.release()
  }
})

it('the primary answers by default, for other reads, and for a cluster whose secondaries may not be read', async () => {
  const { cluster } = one
  const collection = await seed('primary')
  const bulk = () => openBulkRange(cluster, collection, everything, cluster.latest, 100)
  expect(await count(await openRange(cluster, collection, everything, cluster.latest, 100))).toBe(documents)
  for (const changed of [{ copyReadPreference: 'primary' as const }, { sharded: true }, { before6: true }]) {
    Object.assign(cluster, changed)
    try {
      expect(await count(await bulk())).toBe(documents)
    } finally {
      Object.assign(cluster, { copyReadPreference: 'secondaryPreferred', sharded: false, before6: false })
    }
  }
  expect(await answered(secondaries, 'primary')).toEqual({ finds: 0, getMores: 0 })
})

/** Returns the number of finds on the collection that a member runs at the moment. */
async function waiting(member: MongoClient, name: string): Promise<number> {
  const running = [{ $currentOp: { allUsers: true } }, { $match: { 'command.find': name } }]
  return (await member.db('admin').aggregate(running).toArray()).length
}
