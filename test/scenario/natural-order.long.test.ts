import { randomUUID } from 'node:crypto'
import { type Document, MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { commitEqual } from '../support/commit-equal.ts'
import { canCommit } from '../support/commits.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** Another member of the source, with other record ids, becomes the primary during a copy in natural order. */

const pair = pairedSets({ source: { members: 3 } })
const documents = 5_000

/**
 * Returns the finds in natural order that each member of the source has answered, oldest first, for each member that answered
 * any. Failed finds are left out, because tandem sends some finds again while a primary steps down.
 */
async function finds(): Promise<('begun' | 'resumed')[][]> {
  const byMember: ('begun' | 'resumed')[][] = []
  for (const uri of pair.source.uris) {
    await using member = await MongoClient.connect(uri)
    const profile = member.db('bulk').collection('system.profile')
    const filter = { op: 'query', 'command.hint.$natural': 1, errCode: { $exists: false } }
    const answered = await profile.find(filter).sort({ $natural: 1 }).toArray()
    if (answered.length === 0) continue
    byMember.push(answered.map(({ command }: Document) => (command['$_resumeAfter'] ? 'resumed' : 'begun')))
  }
  return byMember
}

test('the copy begins again on the new primary, under writes, and both clusters become equal', async () => {
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
  // A record id is valid on one member only, so the copy begins once on each primary. It may resume at record ids of that primary.
  const byMember = await finds()
  expect(byMember.length).toBeGreaterThanOrEqual(2)
  expect(byMember.map(([first]) => first)).toEqual(byMember.map(() => 'begun'))
  await commitEqual(tandem, pair)
  await tandem.stop()
})
