import { type Binary, Db, Int32 } from 'mongodb'
import { expect, it, onTestFinished, vi } from 'vitest'
import { type CollectionTarget, writeStatements } from '../../src/documents/write-documents.ts'
import { TransientReplyError } from '../../src/mongo/errors.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { oneSet } from '../mongo/one-set.ts'
import { rawDocument } from '../support/bson-values.ts'
import { failPoint } from '../support/fail-point.ts'

/** Tests how statements are divided into commands by number, size and time limit, and how a command that is too large is split. */

const one = oneSet()
const documents = Array.from({ length: 300 }, (_, id) => rawDocument([['_id', new Int32(id)]]))
let count = 0

async function target(): Promise<CollectionTarget> {
  const name = `c${count++}`
  await one.client.db('app').createCollection(name)
  const [info] = await one.client.db('app').listCollections({ name }).toArray()
  return { database: 'app', name, uuid: fromUuid((info as unknown as { info: { uuid: Binary } }).info.uuid) }
}

it.each([
  [10_334, 'BSONObjectTooLarge, as for a reply that contains too many errors'],
  [388, 'TransactionTooLargeForCache'],
  [50, 'MaxTimeMSExpired, as for a thousand documents that are not in the cache'],
])('after a command has failed with error %i, %s, its statements are sent in two halves', async (errorCode) => {
  const to = await target()
  const data = { failCommands: ['insert'], errorCode, appName: 'tandem-test' }
  await using _ = await failPoint(one.client, 'failCommand', data, { times: 3 })
  expect(await writeStatements(one.cluster, to, 'insert', documents)).toEqual([])
  expect(await one.client.db('app').collection(to.name).countDocuments()).toBe(300)
})

it('after a statement has exceeded the time limit, the statements of its command are sent in two halves', async () => {
  const to = await target()
  const write = vi.spyOn(one.cluster, 'write').mockRejectedValueOnce(new TransientReplyError('out of time', 50))
  onTestFinished(() => write.mockRestore())
  expect(await writeStatements(one.cluster, to, 'insert', documents)).toEqual([])
  expect(write).toHaveBeenCalledTimes(3)
})

it('an error has the index of its statement among all statements, even if these were sent in several commands', async () => {
  const to = await target()
  await writeStatements(one.cluster, to, 'insert', documents.slice(100, 200))
  const data = { failCommands: ['insert'], errorCode: 10_334, appName: 'tandem-test' }
  await using _ = await failPoint(one.client, 'failCommand', data, { times: 2 })
  const failed = await writeStatements(one.cluster, to, 'insert', documents)
  expect(failed.map(({ index }) => index)).toEqual(Array.from({ length: 100 }, (_, at) => 100 + at))
  expect(new Set(failed.map(({ code }) => code))).toEqual(new Set([11_000]))
})

it('every command contains the UUID of its collection, is small, and has a server time limit below the client’s', async () => {
  const to = await target()
  const sent = vi.spyOn(Db.prototype, 'command')
  onTestFinished(() => sent.mockRestore())
  const large = Array.from({ length: 10 }, (_, id) =>
    rawDocument([
      ['_id', new Int32(id)],
      ['text', 'x'.repeat(2_000_000)],
    ]),
  )
  const small = Array.from({ length: 12_000 }, (_, id) => rawDocument([['_id', new Int32(100 + id)]]))
  await writeStatements(one.cluster, to, 'insert', [...large, ...small])
  const commands = sent.mock.calls.map(([command]) => command)
  expect(commands.length).toBeGreaterThanOrEqual(3 + 3)
  for (const command of commands) {
    expect(command['collectionUUID'].toString('hex')).toBe(Buffer.from(to.uuid, 'latin1').toString('hex'))
    expect(command['maxTimeMS']).toBeLessThan(30_000)
  }
  expect(await one.client.db('app').collection(to.name).countDocuments()).toBe(12_010)
})

it('a write is not sent if the lease ends between the call and the sending of its message', async () => {
  const to = await target()
  let checks = 0
  onTestFinished(() => {
    one.cluster.fence = () => {}
  })
  one.cluster.fence = () => {
    checks += 1
    if (checks > 1) throw new TransientReplyError('the lease has ended')
  }
  await expect(writeStatements(one.cluster, to, 'insert', documents)).rejects.toThrow('the lease has ended')
  expect(await one.client.db('app').collection(to.name).countDocuments()).toBe(0)
})
