import { randomUUID } from 'node:crypto'
import type { Document } from 'mongodb'
import { expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { commitEqual } from '../support/commit-equal.ts'
import { canCommit } from '../support/commits.ts'
import { expectAccepted } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

/** With `copyInNaturalOrder`, tandem reads a collection with random `_id`s once, in natural order, also after kill -9. */

const pair = pairedSets()
const seed = process.env['TANDEM_SEED'] ?? 'natural order'
const documents = 5_000
const documentBytes = 10_000

/** Creates collections with random `_id`s. Each has about 50 MB, so that it would have several segments in `_id` order. */
async function load(...names: string[]): Promise<void> {
  const text = 'x'.repeat(documentBytes)
  for (const name of names) {
    const collection = pair.sourceClient.db('bulk').collection<{ _id: string; text: string }>(name)
    for (let from = 0; from < documents; from += 1_000) {
      await collection.insertMany(Array.from({ length: 1_000 }, () => ({ _id: randomUUID(), text })))
    }
  }
  // The profiler records every read of a whole collection.
  await pair.sourceClient.db('bulk').command({ profile: 2, slowms: 0 })
}

interface Reads {
  /** The numbers of finds in natural order that began at the first record, and of those that resumed at a token. */
  begun: number
  resumed: number
  /** The number of documents that finds in natural order and their getMores have returned. */
  documents: number
  /** The number of finds over a range of `_id`s. */
  ranges: number
}

async function readsOf(name: string): Promise<Reads> {
  const entries = await pair.sourceClient
    .db('bulk')
    .collection('system.profile')
    .find({ ns: `bulk.${name}` })
    .toArray()
  const commandOf = (entry: Document): Document => entry['originatingCommand'] ?? entry['command'] ?? {}
  const natural = entries.filter((entry) => commandOf(entry)['hint']?.$natural === 1)
  const finds = natural.filter(({ op }) => op === 'query')
  return {
    begun: finds.filter((entry) => !commandOf(entry)['$_resumeAfter']).length,
    resumed: finds.filter((entry) => commandOf(entry)['$_resumeAfter']).length,
    documents: natural.reduce((sum, { nreturned }) => sum + (nreturned ?? 0), 0),
    ranges: entries.filter((entry) => entry['op'] === 'query' && commandOf(entry)['min']).length,
  }
}

async function limit(
  tandem: Tandem,
  limits: Partial<Record<'bytesPerSecond' | 'readConcurrency', number | null>>,
): Promise<void> {
  const response = await fetch(`${tandem.url}/api/v1/limits`, { method: 'PATCH', body: JSON.stringify(limits) })
  expect(response.status).toBe(200)
}

/** Returns the instances that are copying a segment and have stored a position (a token) in it. */
async function ownersWithTokens(): Promise<string[]> {
  const segments = pair.destinationClient.db(metadataDatabase).collection('segments')
  const owners = await segments.distinct('ownerID', { done: false, 'tokens.0': { $exists: true } })
  return owners.sort()
}

const copiedAtLeast = (tandem: Tandem, bytes: number) =>
  tandem.waitFor(({ collectionCopy }) => (collectionCopy?.estimatedCopiedBytes ?? 0) >= bytes, {
    timeoutSeconds: 60,
    what: `${bytes} bytes copied`,
  })

test('under a random workload, a copy that is killed twice resumes at its stored tokens, and both clusters become equal', async () => {
  await seedData(pair.source.uri, seed, 0.1)
  await load('uuids')
  const changed = pair.sourceClient.db('bulk').collection<{ _id: string; text: string }>('uuids')
  const workload = createWorkload({ uri: pair.source.uri, seed, ddl: true, transactions: true })
  const request = { copyInNaturalOrder: [{ database: 'bulk' }], verification: { enabled: true } }
  for (let round = 1; round <= 2; round++) {
    const tandem = await pair.startInstance()
    await limit(tandem, { bytesPerSecond: 5_000_000 })
    if (round === 1) await startSync(tandem, request)
    await copiedAtLeast(tandem, round * 12_000_000)
    await workload.runSteps(10)
    // Change documents that are already copied, and others that are not copied yet.
    const some = await changed.aggregate([{ $sample: { size: 200 } }, { $project: { _id: 1 } }]).toArray()
    await changed.deleteMany({ _id: { $in: some.slice(0, 50).map(({ _id }) => _id) } })
    await changed.updateMany({ _id: { $in: some.slice(50).map(({ _id }) => _id) } }, { $set: { text: `${round}` } })
    await changed.insertMany(some.slice(0, 20).map(({ _id }) => ({ _id, text: 'again' })))
    await tandem.kill9()
  }
  await using tandem = await pair.startInstance()
  await canCommit(tandem)
  const reads = await readsOf('uuids')
  expect(reads.begun).toBe(1)
  // If the document of a token was deleted, tandem repeats the find with an earlier token. So there may be more than two.
  expect(reads.resumed).toBeGreaterThanOrEqual(2)
  // Each kill may lose the positions of the last batches, so the next process reads at most 10 MB again.
  expect(reads.documents).toBeLessThan(documents * 1.5)
  // Only the verifier reads ranges.
  expect(reads.ranges).toBeGreaterThan(0)
  await workload.runSteps(10)
  await commitEqual(tandem, pair)
})

test('two instances copy different collections in natural order, and one continues the collections of the other after a kill', async () => {
  await load('one', 'two', 'three')
  const instances = await pair.startInstances('a', 'b')
  try {
    await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
    // Until an instance has copied a segment, it claims at most two of the three segments, so the other instance gets one.
    for (const tandem of instances.members.values()) {
      await limit(tandem, { bytesPerSecond: 2_000_000, readConcurrency: 1 })
    }
    const body = {
      source: 'cluster0',
      destination: 'cluster1',
      copyInNaturalOrder: true,
      verification: { enabled: false },
    }
    expectAccepted(await instances.post('start', body))
    await expect.poll(ownersWithTokens, { timeout: 60_000 }).toEqual(['a', 'b'])
    await instances.kill9('b')
    const a = instances.members.get('a') as Tandem
    await limit(a, { bytesPerSecond: null, readConcurrency: null })
    await canCommit(a)
    let resumed = 0
    for (const name of ['one', 'two', 'three']) {
      const reads = await readsOf(name)
      resumed += reads.resumed
      expect({ name, ...reads }).toMatchObject({ name, begun: 1, ranges: 0 })
      expect(reads.documents, name).toBeLessThan(documents * 1.5)
    }
    // Instance a has continued what b was copying.
    expect(resumed).toBeGreaterThan(0)
    await commitEqual(a, pair)
  } finally {
    await instances.stop()
  }
})
