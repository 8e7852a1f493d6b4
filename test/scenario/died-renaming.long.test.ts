import { expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { canCommit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** A process crashes after it has renamed a collection on the destination and before it has updated the catalog. */

const pair = pairedSets()

const storedNames = async (): Promise<string[]> => {
  const stored = await pair.destinationClient.db(metadataDatabase).collection('collections').find().toArray()
  return stored.map(({ name }) => name as string).sort()
}

test.each([
  ['when the rename event is read again', 0],
  ['when the rename event is already processed', 1],
])('tandem verifies and commits the renamed collection under its new name, %s', async (_when, restarts) => {
  const app = pair.sourceClient.db('app')
  for (const name of ['before', 'other']) {
    await app.collection<{ _id: number }>(name).insertMany(Array.from({ length: 50 }, (_, _id) => ({ _id })))
  }
  {
    await using tandem = await pair.startInstance()
    await startSync(tandem, { verification: { enabled: true } })
    await canCommit(tandem)
    await tandem.kill9()
  }
  // The test creates the state after such a crash: the collection is renamed on both clusters, but not in the catalog.
  await app.collection('before').rename('after')
  const admin = pair.destinationClient.db('admin')
  await admin.command({ setUserWriteBlockMode: 1, global: false })
  await pair.destinationClient.db('app').collection('before').rename('after')
  // Change the stored state to that of a sync whose verifier has not read any collection yet.
  const internal = pair.destinationClient.db(metadataDatabase)
  await internal.collection('verifiedRanges').deleteMany({})
  const [find, replacement] = ['"initiallyVerified":true', '"initiallyVerified":false']
  const snapshot = { $replaceOne: { input: '$snapshot', find, replacement } }
  expect((await internal.collection('instances').updateMany({}, [{ $set: { snapshot } }])).modifiedCount).toBe(1)
  await admin.command({ setUserWriteBlockMode: 1, global: true })
  expect(await storedNames()).toEqual(['before', 'other'])
  for (let restart = 0; restart < restarts; restart++) {
    await using tandem = await pair.startInstance()
    await canCommit(tandem)
    await expect.poll(storedNames).toEqual(['after', 'other'])
    await tandem.kill9()
  }
  await using tandem = await pair.startInstance()
  // In the second case a write makes event application find the new name. In the first case the verifier has to find it.
  if (restarts > 0) await app.collection<{ _id: number; n?: number }>('after').updateMany({}, { $set: { n: 1 } })
  await canCommit(tandem)
  await tandem.post('commit')
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'COMMITTED' })
  expect(await compareBoth(pair.source.uri, pair.destination.uri)).toMatchObject({ differences: [] })
})
