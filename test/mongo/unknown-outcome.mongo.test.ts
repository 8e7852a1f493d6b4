import { type Document, MongoWriteConcernError } from 'mongodb'
import { expect, it, onTestFinished, vi } from 'vitest'
import { isTransient } from '../../src/mongo/errors.ts'
import { failPoint } from '../support/fail-point.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * A router answers that it lost a shard while the shard goes on with the write. Here the server itself gives that answer, and
 * another operation with the write's comment is what goes on.
 */

const one = oneSet()
let count = 0

/** The write rejects only after what runs under its comment has ended. */
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

it.each(lost)('error %i may leave a write under way, so it is waited for', (errorCode) =>
  expectToWait(false, { errorCode }),
)

it('a router says so of anything that passes', () => expectToWait(true, { errorCode: 50 }))

it('also in a write concern error', () =>
  expectToWait(false, { writeConcernError: { code: 91, errmsg: 'shutting down' } }))

it('also of one statement', async () => {
  const cluster = testCluster(one.set.uri, 'statements')
  onTestFinished(() => cluster.close())
  const asked = vi.spyOn(cluster, 'idle')
  const command = vi.spyOn(cluster.client.db('app').constructor.prototype, 'command')
  onTestFinished(() => command.mockRestore())
  const writeErrors = [{ index: 0, code: 6, errmsg: 'no shard' }]
  command.mockResolvedValueOnce({ ok: 1, n: 0, writeErrors })
  await expect(cluster.write('app', { insert: 'c', documents: [{}] })).rejects.toThrow('transient error')
  expect(asked).toHaveBeenCalledExactlyOnceWith({ 'command.comment': 'statements:1' })
  // The driver throws a write concern error, with the statements' errors in it.
  const writeConcernError = { code: 100, codeName: 'UnsatisfiableWriteConcern', errmsg: 'too few members' }
  command.mockRejectedValueOnce(new MongoWriteConcernError({ ok: 1, writeConcernError, writeErrors }))
  await expect(cluster.write('app', { insert: 'c', documents: [{}] })).rejects.toThrow('too few members')
  expect(asked).toHaveBeenLastCalledWith({ 'command.comment': 'statements:2' })
})

it('a write concern that was not met is no answer, whatever the reason', async () => {
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
