import { randomUUID } from 'node:crypto'
import { type Document, MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { commitEqual } from '../support/commit-equal.ts'
import { canCommit } from '../support/commits.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** A copy in natural order when another member, with other record ids, becomes the primary. */

const pair = pairedSets({ source: { members: 3 } })
const documents = 5_000

/** Finds in natural order, on all members of the source: from the beginning and resumed. */
async function finds(): Promise<{ begun: number; resumed: number }> {
  const sum = { begun: 0, resumed: 0 }
  for (const uri of pair.source.uris) {
    await using member = await MongoClient.connect(uri)
    const profile = member.db('bulk').collection('system.profile')
    const found = await profile.find({ op: 'query', 'command.hint.$natural': 1 }).toArray()
    for (const { command } of found as Document[]) sum[command['$_resumeAfter'] ? 'resumed' : 'begun'] += 1
  }
  return sum
}

test('begins again on the new primary, under changes, and ends equal', async () => {
  const text = 'x'.repeat(10_000)
  const collection = pair.sourceClient.db('bulk').collection<{ _id: string; text: string }>('uuids')
  for (let from = 0; from < documents; from += 500) {
    // Concurrent inserts get different record ids on different members.
    const parts = Array.from({ length: 5 }, () => Array.from({ length: 100 }, () => ({ _id: randomUUID(), text })))
    await Promise.all(parts.map((part) => collection.insertMany(part, { writeConcern: { w: 'majority' } })))
  }
  for (const uri of pair.source.uris) {
    await using member = await MongoClient.connect(uri)
    await member.db('bulk').command({ profile: 2, slowms: 0 })
  }
  const tandem = await pair.startInstance()
  const limit = async (bytesPerSecond: number | null): Promise<void> => {
    const changed = { method: 'PATCH', body: JSON.stringify({ bytesPerSecond }) }
    expect((await fetch(`${tandem.url}/api/v1/limits`, changed)).status).toBe(200)
  }
  await limit(4_000_000)
  await startSync(tandem, { copyInNaturalOrder: [{ database: 'bulk', collections: ['uuids'] }] })
  await tandem.waitFor(({ collectionCopy }) => (collectionCopy?.estimatedCopiedBytes ?? 0) > 15_000_000, {
    timeoutSeconds: 60,
    what: 'a part is copied',
  })
  await pair.source.stepDown()
  await collection.deleteMany({ _id: { $lt: '2' } })
  await collection.updateMany({ _id: { $gt: 'e' } }, { $set: { text: 'changed' } })
  await limit(null)
  await canCommit(tandem)
  expect(await finds()).toMatchObject({ begun: 2 })
  await commitEqual(tandem, pair)
  await tandem.stop()
})
