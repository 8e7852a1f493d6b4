import { beforeEach, expect, it, vi } from 'vitest'
import type { AuditEntry } from '../../src/domain/audit-entry.ts'
import { AuditStore } from '../../src/mongo/audit-store.ts'
import { CommandTrail } from '../../src/session/command-trail.ts'
import { testCluster } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'

const one = oneSet()
let store: AuditStore
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
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
const noTrouble = (error: unknown): never => {
  throw error
}

it('the newest thousand are kept, of however many', async () => {
  await store.add(several(0, 700))
  await store.add(several(700, 1_500))
  const kept = await store.read()
  expect(kept).toHaveLength(1_000)
  expect([kept.at(0), kept.at(-1)]).toEqual([entry(1_499), entry(500)])
})

it('what is sent again is there once', async () => {
  await store.add(several(0, 3))
  await store.add(several(1, 5))
  expect(await store.read()).toEqual(several(0, 5).reverse())
})

it('entries from before there was a sync are stored with it, and go with it to another place', async () => {
  const place: { audit: AuditStore | null } = { audit: null }
  const trail = new CommandTrail(place, noTrouble)
  void trail.add(entry(1))
  expect(await trail.read()).toEqual([entry(1)])
  place.audit = store
  void trail.add(entry(2))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(2), entry(1)]), { timeout: 10_000 })
  // As after a reversal, which has another destination.
  await one.client.db('tandem_internal').dropDatabase()
  place.audit = new AuditStore(one.cluster)
  void trail.add(entry(3))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(3), entry(2), entry(1)]), {
    timeout: 10_000,
  })
  expect(await trail.read()).toEqual([entry(3), entry(2), entry(1)])
  trail.close()
})

it('a destination that does not answer is told of once and costs nothing', async () => {
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
  trail.close()
  await away.close()
})

it('a receipt is stored when a command may be carried out, and its outcome replaces it, whichever comes first', async () => {
  const trail = new CommandTrail({ audit: store }, noTrouble)
  const receipt: AuditEntry = { ...entry(1), outcome: 'received' }
  await trail.add(receipt)
  expect(await store.read()).toEqual([receipt])
  await trail.add(entry(1))
  expect(await store.read()).toEqual([entry(1)])
  expect(await trail.read()).toEqual([entry(1)])
  // The message with the receipt was delayed.
  await store.add([receipt])
  expect(await store.read()).toEqual([entry(1)])
  trail.close()
})

it('commands at one time are each stored before they are carried out', async () => {
  const trail = new CommandTrail({ audit: store }, noTrouble)
  const found = await Promise.all(
    several(0, 20).map(async (one) => {
      await trail.add({ ...one, outcome: 'received' })
      return (await store.read()).some(({ id }) => id === one.id)
    }),
  )
  expect(found).toEqual(found.map(() => true))
  trail.close()
})

it('a command does not wait for a destination that does not answer', async () => {
  const away = testCluster('mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=600000')
  const trail = new CommandTrail({ audit: new AuditStore(away) }, () => {})
  await trail.add({ ...entry(1), outcome: 'received' })
  trail.close()
  await away.close()
})

it('entries of the previous release are shown beside ours, without a token', async () => {
  const { id, token: _, ...former } = entry(1)
  const trail = one.client.db('tandem_internal').collection<{ _id: string; schemaVersion: number }>('audit')
  await trail.insertOne({ _id: id, ...former, schemaVersion: 1 })
  await trail.insertOne({ _id: 'later', ...former, schemaVersion: 3 })
  await store.add([entry(2)])
  expect(await store.read()).toEqual([entry(2), { ...entry(1), token: null }])
  // What the previous release looks for.
  expect(await trail.countDocuments({ schemaVersion: 1 })).toBe(1)
})
