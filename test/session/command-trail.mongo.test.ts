import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { AuditEntry } from '../../src/domain/audit-entry.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { AuditStore } from '../../src/mongo/audit-store.ts'
import { CommandTrail } from '../../src/session/command-trail.ts'
import { type Connection, InstanceCommands } from '../../src/session/instance-commands.ts'
import { testCluster } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'

const one = oneSet()
let store: AuditStore
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
  store = new AuditStore(one.cluster)
})

const entry = (number: number): AuditEntry => ({
  id: `entry ${number}`,
  time: new Date(1_000_000 + number).toISOString(),
  mongosyncID: 'one',
  command: 'pause',
  remoteAddress: '127.0.0.1',
  token: 'control',
  outcome: 'accepted',
  error: null,
})
const several = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => entry(from + index))
const failOnTrouble = (error: unknown): never => {
  throw error
}

it('the store keeps the newest thousand entries', async () => {
  await store.add(several(0, 700))
  await store.add(several(700, 1_500))
  const kept = await store.read()
  expect(kept).toHaveLength(1_000)
  expect([kept.at(0), kept.at(-1)]).toEqual([entry(1_499), entry(500)])
})

it('an entry that is added twice is stored once', async () => {
  await store.add(several(0, 3))
  await store.add(several(1, 5))
  expect(await store.read()).toEqual(several(0, 5).reverse())
})

it('entries that were added before the sync exists are stored once it exists, and move with it to another destination', async () => {
  const place: { audit: AuditStore | null } = { audit: null }
  const trail = new CommandTrail(place, failOnTrouble)
  void trail.add(entry(1))
  expect(await trail.read()).toEqual([entry(1)])
  place.audit = store
  void trail.add(entry(2))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(2), entry(1)]), { timeout: 10_000 })
  // A reversal changes the destination.
  await one.client.db(metadataDatabase).dropDatabase()
  place.audit = new AuditStore(one.cluster)
  void trail.add(entry(3))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(3), entry(2), entry(1)]), {
    timeout: 10_000,
  })
  expect(await trail.read()).toEqual([entry(3), entry(2), entry(1)])
  await trail.close()
})

describe('a command that another instance has passed on', () => {
  const received = {
    mongosyncID: 'b',
    command: 'abort',
    remoteAddress: null,
    token: null,
    sender: 'a',
    outcome: 'received',
    error: null,
  }

  /**
   * Creates the instance `b`, whose sync is in the given state. `connecting` is called when it begins to perform a
   * command.
   */
  function instanceIn(state: string, connecting = async () => {}) {
    const logged: unknown[] = []
    const snapshot = { context: { commitAborted: {} }, can: () => false }
    const sync = { state, actor: { getSnapshot: () => snapshot }, refuseTakenOver: () => {} }
    const whenConnected = async () => {
      await connecting()
      return sync
    }
    const connection = { audit: store, failure: null, whenConnected } as unknown as Connection
    const instance = new InstanceCommands(connection, 'b', (message, fields) => logged.push({ message, fields }))
    onTestFinished(async () => await instance.close())
    return { instance, logged }
  }

  it('is recorded with its sender before the instance performs it, and again with its outcome', async () => {
    let before: AuditEntry[] = []
    const { instance, logged } = instanceIn('RUNNING', async () => {
      before = await store.read()
    })
    await instance.perform({ command: 'abort' }, 'a')
    expect(before).toEqual([{ ...received, id: expect.any(String), time: expect.any(String) }])
    const accepted = [{ ...before[0], outcome: 'accepted' }]
    await vi.waitFor(async () => expect(await store.read()).toEqual(accepted), { timeout: 10_000 })
    expect(logged).toMatchObject([
      { message: 'audit', fields: { command: 'abort', sender: 'a', outcome: 'received' } },
      { message: 'audit', fields: { command: 'abort', sender: 'a', outcome: 'accepted' } },
    ])
  })

  it('is not answered before its outcome is stored', async () => {
    const [sent, held] = [deferred<void>(), deferred<void>()]
    class HeldStore extends AuditStore {
      override async add(entries: readonly AuditEntry[]): Promise<void> {
        if (entries.some(({ outcome }) => outcome === 'accepted')) {
          sent.resolve()
          await held.promise
        }
        await super.add(entries)
      }
    }
    store = new HeldStore(one.cluster)
    const { instance } = instanceIn('RUNNING')
    let isAnswered = false
    const performed = instance.perform({ command: 'abort' }, 'a').then(() => {
      isAnswered = true
    })
    await sent.promise
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate)
    expect(isAnswered).toBe(false)
    held.resolve()
    await performed
  })

  it('is recorded with the name of the error when it is refused or fails', async () => {
    const { instance } = instanceIn('PAUSED')
    await expect(instance.perform({ command: 'abort' }, 'a')).rejects.toMatchObject({ refusal: 'WrongState' })
    const refused = { ...received, outcome: 'refused', error: 'WrongState' }
    await vi.waitFor(async () => expect(await store.read()).toMatchObject([refused]), { timeout: 10_000 })
    const failing = instanceIn('PAUSED', () => Promise.reject(new Error('hunter2'))).instance
    await expect(failing.perform({ command: 'abort' }, null)).rejects.toThrow('hunter2')
    const failed = { ...received, sender: null, outcome: 'refused', error: 'InternalError' }
    await vi.waitFor(
      async () => expect(await store.read()).toEqual(expect.arrayContaining([expect.objectContaining(failed)])),
      { timeout: 10_000 },
    )
  })
})

it('a destination that does not answer is reported once, and no entry is lost', async () => {
  const away = testCluster('mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50')
  const troubles: unknown[] = []
  const place = { audit: new AuditStore(away) }
  const trail = new CommandTrail(place, (error) => troubles.push(error))
  void trail.add(entry(1))
  await vi.waitFor(() => expect(troubles).toHaveLength(1), { timeout: 30_000 })
  place.audit = store
  void trail.add(entry(2))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(2), entry(1)]), { timeout: 10_000 })
  expect(troubles).toHaveLength(1)
  await trail.close()
  await away.close()
})

it('a command of the store that gets no answer does not hold up the entries', async () => {
  const trail = new CommandTrail({ audit: new AuditStore(one.cluster, 500) }, () => {}, 3_600_000)
  onTestFinished(() => trail.close())
  const blockTimeMS = 15_000
  const unanswered = {
    failCommands: ['insert'],
    namespace: `${metadataDatabase}.audit`,
    blockConnection: true,
    blockTimeMS,
  }
  await using point = await failPoint(one.client, 'failCommand', unanswered, { times: 1 })
  void trail.add({ ...entry(1), outcome: 'received' })
  await point.reached()
  void trail.add(entry(1))
  // The entry is stored while the server still holds the command back.
  await vi.waitFor(async () => expect(await store.read()).toEqual([entry(1)]), { timeout: blockTimeMS - 2_000 })
  const admin = one.client.db('admin')
  const held = await admin.aggregate([{ $currentOp: {} }, { $match: { 'command.insert': 'audit' } }]).toArray()
  expect(held).toHaveLength(1)
  // The server turns a fail point off only when the command that it holds back has ended.
  for (const { opid } of held) await admin.command({ killOp: 1, op: opid })
})

it('an entry that could not be stored is sent again at once', async () => {
  const trail = new CommandTrail({ audit: store }, () => {}, 3_600_000)
  onTestFinished(() => trail.close())
  const failing = { failCommands: ['update'], namespace: `${metadataDatabase}.audit`, errorCode: 91 }
  await using point = await failPoint(one.client, 'failCommand', failing, { times: 1 })
  void trail.add(entry(1))
  await point.reached()
  await vi.waitFor(async () => expect(await store.read()).toEqual([entry(1)]), { timeout: 10_000 })
})

it('an entry that could not be stored is sent again when the process ends', async () => {
  const trail = new CommandTrail({ audit: store }, () => {}, 3_600_000)
  const failing = { failCommands: ['update'], namespace: `${metadataDatabase}.audit`, errorCode: 91 }
  await using _ = await failPoint(one.client, 'failCommand', failing, { times: 1 })
  await trail.add(entry(1))
  await trail.close()
  await vi.waitFor(async () => expect(await store.read()).toEqual([entry(1)]), { timeout: 20_000 })
})

it('a receipt is stored before its command is carried out, and the outcome replaces it, whichever arrives first', async () => {
  const trail = new CommandTrail({ audit: store }, failOnTrouble)
  const receipt: AuditEntry = { ...entry(1), outcome: 'received' }
  await trail.add(receipt)
  expect(await store.read()).toEqual([receipt])
  await trail.add(entry(1))
  expect(await store.read()).toEqual([entry(1)])
  expect(await trail.read()).toEqual([entry(1)])
  // The message with the receipt was delayed.
  await store.add([receipt])
  expect(await store.read()).toEqual([entry(1)])
  await trail.close()
})

it('each of several simultaneous commands is stored before it is carried out', async () => {
  const trail = new CommandTrail({ audit: store }, failOnTrouble)
  const found = await Promise.all(
    several(0, 20).map(async (one) => {
      await trail.add({ ...one, outcome: 'received' })
      return (await store.read()).some(({ id }) => id === one.id)
    }),
  )
  expect(found).toEqual(found.map(() => true))
  await trail.close()
})

it('a command does not wait for a destination that does not answer', async () => {
  const away = testCluster('mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=600000')
  const trail = new CommandTrail({ audit: new AuditStore(away) }, () => {})
  await trail.add({ ...entry(1), outcome: 'received' })
  await trail.close()
  await away.close()
})

it('entries of the previous release, which have no token, are shown together with entries of this release', async () => {
  const { id, token: _, ...former } = entry(1)
  const trail = one.client.db(metadataDatabase).collection<{ _id: string; schemaVersion: number }>('audit')
  await trail.insertOne({ _id: id, ...former, schemaVersion: 1 })
  await trail.insertOne({ _id: 'later', ...former, schemaVersion: 3 })
  await store.add([entry(2)])
  expect(await store.read()).toEqual([entry(2), { ...entry(1), token: null }])
  // The previous release searches for this version.
  expect(await trail.countDocuments({ schemaVersion: 1 })).toBe(1)
})
