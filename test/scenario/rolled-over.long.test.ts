import { type Document, Long, type Timestamp } from 'mongodb'
import { expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { failPoint } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { Random } from '../support/random.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

/**
 * The copy takes longer than the oplog window of the source. tandem applies changes during the copy, so its position stays
 * within the oplog. contract-failure.cluster.test.ts tests a position that the oplog loses while the instance is down.
 */

/**
 * The oplog size is set at startup, because `replSetResizeOplog` accepts no size below 990 MB. The server keeps all oplog
 * entries since the last checkpoint, so frequent checkpoints (`--syncdelay`) let it truncate the oplog soon.
 */
const pair = pairedSets({ source: { oplogSizeMB: 6, extraArgs: ['--syncdelay', '1'] } })

/**
 * The approximate number of bytes that one round writes. It is a fraction of the oplog size, so that the position stays
 * within the oplog until the test waits for it again.
 */
const noiseBytes = 1_000_000

test.each([
  ['that is synced', 'noise', {}],
  ['that the filter excludes', 'outside', { excludeNamespaces: [{ database: 'outside' }] }],
])(
  'README: the clusters become equal although writes to a database %s roll the oplog over during the copy',
  async (_what, noisy, options) => {
    const { source, destination, sourceClient, destinationClient } = pair
    const seed = `rolled over by ${noisy}`
    await seedData(source.uri, seed, 0.2)
    const things = sourceClient.db('app').collection<{ _id: number }>('things')
    await things.insertMany(Array.from({ length: 5_000 }, (_, _id) => ({ _id })))
    const workload = createWorkload({ uri: source.uri, seed, ddl: true, transactions: true })
    await workload.runSteps(10)

    // tandem retries the copy of this collection until the fail point is released. Updates and deletes use other commands, so
    // they are applied.
    const data = { failCommands: ['insert'], namespace: 'app.things', errorCode: 262 }
    await using held = await failPoint(destinationClient, 'failCommand', data)
    let tandem = await pair.startInstance()
    try {
      await startSync(tandem, options)
      await held.reached()
      const noise = makeNoise(noisy)
      const started = await startTime()
      for (let round = 0; (await oldestOplogTime()).lte(started); round++) {
        expect(round).toBeLessThan(200)
        await workload.runSteps(4)
        await things.updateOne({ _id: round }, { $set: { round } })
        await things.deleteOne({ _id: 4_999 - round })
        await noise()
        if (round % 2 === 1) await positionReaches(await newestOplogTime())
      }
      expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', info: 'collection copy', canCommit: false })

      // The next process can continue only from the stored position, because the oplog no longer reaches back to the start.
      await tandem.kill9()
      tandem = await pair.startInstance()
      await things.updateOne({ _id: 2_500 }, { $set: { after: 'kill' } })
      await expect.poll(() => arrived(2_500), { timeout: 30_000 }).toBe(true)
      expect(await arrived(2_501)).toBe(false)
      expect((await oldestOplogTime()).gt(started)).toBe(true)
      expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', info: 'collection copy', canCommit: false })

      await held.release()
      await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
      await workload.runSteps(10)
      expect(await tandem.post('commit')).toMatchObject({ status: 200 })
      await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
    } finally {
      await tandem.stop()
    }
    const selects: Selects = (database) => database !== 'outside'
    const { differences, documents } = await compareBoth(source.uri, destination.uri, { selects })
    expect(differences).toEqual([])
    expect(documents).toBeGreaterThan(4_900)
  },
)

function makeNoise(database: string): () => Promise<unknown> {
  const collection = pair.sourceClient.db(database).collection('documents')
  const text = new Random(database).bytes(noiseBytes / 20).toString('latin1')
  return () => collection.insertMany(Array.from({ length: 10 }, (_, at) => ({ at, text })))
}

const arrived = async (_id: number): Promise<boolean> => {
  const collection = pair.destinationClient.db('app').collection<{ _id: number }>('things')
  return (await collection.countDocuments({ _id })) === 1
}

const longOf = (time: Timestamp): Long => new Long(time.low, time.high, true)

async function startTime(): Promise<Long> {
  const sync = await pair.destinationClient.db(metadataDatabase).collection('sync').findOne()
  return longOf(sync?.['startTime'])
}

async function edgeOfOplog(order: 1 | -1): Promise<Long> {
  const oplog = pair.sourceClient.db('local').collection('oplog.rs')
  const [edge] = await oplog.find().sort({ $natural: order }).limit(1).toArray()
  return longOf(edge?.['ts'])
}
const oldestOplogTime = () => edgeOfOplog(1)
const newestOplogTime = () => edgeOfOplog(-1)

/** Waits until the stored positions show that all changes up to this time are applied. */
async function positionReaches(time: Long): Promise<void> {
  const positions = pair.destinationClient.db(metadataDatabase).collection<Document>('positions')
  const behind = async () => {
    const times = (await positions.find().toArray()).map((one) => longOf(one['time']))
    return times.length === 0 || times.some((one) => one.lt(time))
  }
  await expect.poll(behind, { timeout: 30_000, interval: 20 }).toBe(false)
}
