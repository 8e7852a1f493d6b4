import { type Document, MongoWriteConcernError } from 'mongodb'
import { expect, it, onTestFinished, vi } from 'vitest'
import { isTransient } from '../../src/mongo/errors.ts'
import { failPoint } from '../support/fail-point.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * A router may reply that it has lost its connection to a shard while the shard continues the write. In these tests a fail point
 * of the server gives that reply, and another operation with the comment of the write represents the write that continues.
 */

const one = oneSet()
let count = 0

/** Expects that the write rejects only after the operation with its comment has ended. */
async function expectToWait(sharded: boolean, data: Document): Promise<void> {
  const appName = `router-${count++}`
  const cluster = testCluster(one.set.uri, appName)
  onTestFinished(() => cluster.close())
  cluster.sharded = sharded
  await using _ = await failPoint(
    one.client,
    'failCommand',
    { failCommands: ['insert'], appName, ...data },
    { times: 1 },
  )
  const comment = `${appName}:1`
  const operations = async (): Promise<number> => {
    const pipeline = [{ $currentOp: {} }, { $match: { 'command.comment': comment } }]
    return (await one.client.db('admin').aggregate(pipeline).toArray()).length
  }
  const sleeping = one.client.db('admin').command({ sleep: 1, millis: 500, lock: 'none', comment })
  await vi.waitFor(async () => expect(await operations()).toBe(1))
  const error = await cluster.write('app', { insert: 'c', documents: [{}] }).then(
    () => null,
    (reason) => reason,
  )
  const left = await operations()
  await sleeping
  expect(left).toBe(0)
  expect(isTransient(error)).toBe(true)
}

const lost = [6, 89, 90, 91, 145, 189, 202, 317, 333, 384, 9001, 11600, 11602]

it.each(lost)('tandem waits for a write that failed with error %i, because it may still run', (errorCode) =>
  expectToWait(false, { errorCode }),
)

it('tandem waits for a write for which a router returned any transient error', () =>
  expectToWait(true, { errorCode: 50 }))

it('tandem waits for a write that failed with such a code in a write concern error', () =>
  expectToWait(false, { writeConcernError: { code: 91, errmsg: 'shutting down' } }))

it('tandem waits for a write of which one statement failed with such a code', async () => {
  const cluster = testCluster(one.set.uri, 'statements')
  onTestFinished(() => cluster.close())
  const idle = vi.spyOn(cluster, 'idle')
  const command = vi.spyOn(cluster.client.db('app').constructor.prototype, 'command')
  onTestFinished(() => command.mockRestore())
  const writeErrors = [{ index: 0, code: 6, errmsg: 'no shard' }]
  command.mockResolvedValueOnce({ ok: 1, n: 0, writeErrors })
  await expect(cluster.write('app', { insert: 'c', documents: [{}] })).rejects.toThrow('transient error')
  expect(idle).toHaveBeenCalledExactlyOnceWith({ 'command.comment': 'statements:1' })
  // The driver throws a write concern error that contains the errors of the statements.
  const writeConcernError = { code: 100, codeName: 'UnsatisfiableWriteConcern', errmsg: 'too few members' }
  command.mockRejectedValueOnce(new MongoWriteConcernError({ ok: 1, writeConcernError, writeErrors }))
  await expect(cluster.write('app', { insert: 'c', documents: [{}] })).rejects.toThrow('too few members')
  expect(idle).toHaveBeenLastCalledWith({ 'command.comment': 'statements:2' })
})

it('an unmet write concern is a transient error for any reason', async () => {
  const cluster = testCluster(one.set.uri, 'concern')
  onTestFinished(() => cluster.close())
  const data = {
    failCommands: ['insert'],
    appName: 'concern',
    writeConcernError: { code: 100, errmsg: 'too few members' },
  }
  await using _ = await failPoint(one.client, 'failCommand', data, { times: 1 })
  const error = await cluster.write('app', { insert: 'c', documents: [{}] }).catch((reason: unknown) => reason)
  expect(isTransient(error)).toBe(true)
})
