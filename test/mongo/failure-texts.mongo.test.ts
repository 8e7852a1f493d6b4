import { expect, it } from 'vitest'
import { DestinationSharding } from '../../src/definitions/destination-sharding.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { toFailure } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Reopenings } from '../../src/mongo/reopenings.ts'
import { retry } from '../../src/mongo/retry.ts'
import { StoredDocuments } from '../../src/mongo/stored-documents.ts'
import { failPoint } from '../support/fail-point.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * If the reply of a server has caused a failure, the failure names the command or step, the cluster, the namespace, and the
 * server's code name and text. Real servers give the replies.
 */

const one = oneSet()

/** Returns the failure that ends the work. */
async function failureOf(work: Promise<unknown>) {
  const error = await work.then(
    () => 'no error',
    (error) => error,
  )
  return toFailure(error)
}

it('ShardingFailed', async () => {
  const destinationUUID = Buffer.alloc(16, 1).toString('latin1')
  const entry = { database: 'app', name: 'things', wanted: { options: [] }, shardKey: null, uuid: 'u', destinationUUID }
  const sharding = new DestinationSharding(one.cluster, one.cluster, testContext())
  const key = [{ path: 'region', hashed: false }]
  const { error, errorDescription } = await failureOf(sharding.follow(entry as unknown as CatalogEntry, key))
  expect(error).toBe('ShardingFailed')
  // A replica set does not know the command shardCollection.
  expect(errorDescription).toMatch(
    /^sharding: app\.things cannot be sharded by .*region.* on the destination \(shardCollection on cluster0, app\.things: CommandNotFound \(59\): no such command: 'shardCollection'\)/,
  )
})

it.each([
  [13, 'MissingPrivileges', 'Unauthorized'],
  [18, 'AuthenticationFailed', 'AuthenticationFailed'],
] as const)('the server error %i', async (errorCode, name, codeName) => {
  await using _ = await failPoint(one.client, 'failCommand', { failCommands: ['count'], errorCode })
  const counting = retry('counting documents', testContext(), () => one.cluster.read('app', { count: 'things' }))
  const { error, errorDescription } = await failureOf(counting)
  expect(error).toBe(name)
  expect(errorDescription).toMatch(
    `(count on cluster0, app.things: ${codeName} (${errorCode}): Failing command via 'failCommand' failpoint)`,
  )
  expect(errorDescription).toMatch(/^counting documents: /)
})

it('a write to the metadata database that fails, and one that the server refuses because of a later term', async () => {
  const stored = new StoredDocuments(one.cluster, testContext())
  const place = `update on cluster0, ${metadataDatabase}.positions: `
  const updates = [{ q: { _id: 1, term: 1 }, u: { $set: { text: 'x' } }, upsert: true }]
  await stored.update('positions', updates)
  expect(await failureOf(stored.update('positions', [{ q: { _id: 1 }, u: { $set: { _id: 2 } } }]))).toEqual({
    error: 'InternalError',
    errorDescription: expect.stringMatching(`^writing metadata: ${place}ImmutableField \\(66\\): .+`),
  })
  const later = [{ q: { _id: 1, term: 2 }, u: { $set: { text: 'x' } }, upsert: true }]
  const { error, errorDescription } = await failureOf(stored.updateFenced('positions', later))
  expect(error).toBe('LeaseLost')
  expect(errorDescription).toMatch(/^storing progress in mongosync_internal_tandem\.positions: another instance/)
  expect(errorDescription).toMatch(`(${place}DuplicateKey (11000): E11000 duplicate key error collection)`)
})

it('ChangeStreamStalled', async () => {
  const reopenings = new Reopenings(testContext(), { openings: 1, withinMS: 0 })
  reopenings.opened()
  await using _ = await failPoint(one.client, 'failCommand', { failCommands: ['aggregate'], errorCode: 11601 })
  const command = { aggregate: 1, pipeline: [{ $changeStream: {} }], cursor: {} }
  reopenings.lost(await one.cluster.read('admin', command).catch((error) => error))
  expect(await failureOf(reopenings.opening())).toEqual({
    error: 'ChangeStreamStalled',
    errorDescription: expect.stringMatching(/\(last error: aggregate on cluster0, admin: Interrupted \(11601\): .+\)/),
  })
})
