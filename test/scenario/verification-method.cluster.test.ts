import { Double, Long, type MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import { accepted, canCommit, committed, failed } from '../support/commits.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** `verification.initialCompareMethod: toHashedIndexKey` from start to COMMITTED. */

const pair = pairedSets()
const byHashes = { verification: { enabled: true, initialCompareMethod: 'toHashedIndexKey' } }

interface Row {
  _id: number
  v: unknown
}
const rows = (client: MongoClient) => client.db('app').collection<Row>('rows', { promoteValues: false })

it('a sync that compares hashes first commits, and progress says what that does not prove', async () => {
  await rows(pair.sourceClient).insertMany(Array.from({ length: 1_000 }, (_, _id) => ({ _id, v: new Double(_id / 8) })))
  await using tandem = await pair.startInstance()
  const body = { source: 'cluster0', destination: 'cluster1', ...byHashes }
  const { findings } = (await tandem.post('check', body)).body
  const warning = expect.objectContaining({ severity: 'warning', name: 'HashedVerification' })
  expect(findings).toEqual(expect.arrayContaining([warning]))
  const notProven = expect.stringContaining('do not prove equal types of numbers')
  expect((await tandem.post('start', body)).body).toMatchObject({
    success: true,
    warnings: expect.arrayContaining([notProven]),
  })
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  const { verification, warnings } = await committed(tandem)
  expect(verification).toMatchObject({
    initialCompareMethod: 'toHashedIndexKey',
    source: { hashedDocumentCount: 1_000, phase: 'stream hashing' },
  })
  expect(warnings).toEqual(expect.arrayContaining([notProven]))
})

it('a document of another client whose number has another type of the same size is found, because its change is compared as bytes', async () => {
  await rows(pair.sourceClient).insertMany([{ _id: 1, v: Long.fromNumber(5) }])
  await using tandem = await pair.startInstance()
  await startSync(tandem, byHashes)
  await canCommit(tandem)
  await pair.destinationClient.db('admin').command({ setUserWriteBlockMode: 1, global: false })
  await rows(pair.destinationClient).updateOne({ _id: 1 }, { $set: { v: new Double(5) } })
  expect(await tandem.post('commit')).toEqual(accepted)
  const { failure } = await failed(tandem)
  expect(failure?.error).toBe('VerificationFailed')
})
