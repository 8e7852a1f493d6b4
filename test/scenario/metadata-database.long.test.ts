import { expect, it } from 'vitest'
import { olderMetadataDatabase } from '../../src/domain/namespace.ts'
import { CleanedPair } from '../clean/cleaned-pair.ts'
import { accepted, canCommit, failed } from '../support/commits.ts'

/** An earlier release begins a sync while a sync of this release runs. The instance looks for such a sync twice a minute. */

const pair = new CleanedPair()

it('an instance ends in FAILED within a minute, and continues when the other sync is removed', async () => {
  await using tandem = await pair.startedSync()
  const record = await pair.stored('sync').findOne({ _id: 'sync' })
  const run = (command: object) =>
    pair.sets.destinationClient.db(olderMetadataDatabase).command({ ...command, mayBypassWriteBlocking: true })
  await run({ update: 'sync', updates: [{ q: { _id: 'sync' }, u: record }] })
  expect((await failed(tandem)).failure).toMatchObject({ error: 'StoredStateConflict' })
  await run({ dropDatabase: 1 })
  expect(await tandem.post('resume')).toEqual(accepted)
  await canCommit(tandem)
})
