import { randomBytes } from 'node:crypto'
import type { Document, MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

const pair = pairedSets()

/** Returns the bytes that a server has exchanged with this compressor, counted before compression. */
async function traffic(client: MongoClient, compressor: string): Promise<{ received: number; sent: number }> {
  const { network } = await client.db('admin').command({ serverStatus: 1 })
  const { decompressor, compressor: outgoing } = (network as Document)['compression'][compressor]
  return { received: Number(decompressor.bytesOut), sent: Number(outgoing.bytesIn) }
}

const things = (client: MongoClient) => client.db('app').collection<{ _id: number; filling: Buffer }>('things')
const filled = (from: number, count: number) =>
  Array.from({ length: count }, (_, at) => ({ _id: from + at, filling: randomBytes(20_000) }))
const addedBytes = 20_000 * 300

it('a sync whose connection strings name compressors copies, follows, verifies and commits over compressed connections', async () => {
  await things(pair.sourceClient).insertMany(filled(0, 300))
  await using tandem = await startTandem({
    cluster0: `${pair.source.uri}&compressors=snappy`,
    cluster1: `${pair.destination.uri}&compressors=zlib,snappy&zlibCompressionLevel=1`,
  })
  await vi.waitFor(() => tandem.progress(), { timeout: 30_000, interval: 20 })
  await startSync(tandem, { verification: { enabled: true }, enableUserWriteBlocking: 'destinationOnly' })
  await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  const copied = await traffic(pair.destinationClient, 'zlib')
  expect(copied.received).toBeGreaterThan(addedBytes)
  expect((await traffic(pair.sourceClient, 'snappy')).sent).toBeGreaterThan(addedBytes)

  await things(pair.sourceClient).insertMany(filled(300, 300))
  await vi.waitFor(async () => expect(await things(pair.destinationClient).countDocuments()).toBe(600), {
    timeout: 60_000,
    interval: 50,
  })
  expect((await traffic(pair.destinationClient, 'zlib')).received - copied.received).toBeGreaterThan(addedBytes)
  await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  expect(await tandem.post('commit')).toEqual({ status: 200, body: { success: true } })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
})
