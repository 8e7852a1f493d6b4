import { beforeEach, expect, it, vi } from 'vitest'
import type { AuditEntry } from '../../src/domain/audit-entry.ts'
import { AuditStore } from '../../src/mongo/audit-store.ts'
import { CommandTrail } from '../../src/sync/command-trail.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()
let store: AuditStore
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
  store = new AuditStore(one.cluster)
})

const entry = (number: number): AuditEntry => ({
  time: new Date(1_000_000 + number).toISOString(),
  mongosyncID: 'one',
  command: 'pause',
  remoteAddress: '127.0.0.1',
  outcome: 'accepted',
  error: null,
})
const stored = (number: number) => ({ id: `entry ${number}`, ...entry(number) })
const several = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => stored(from + index))
const noTrouble = (error: unknown): never => {
  throw error
}

it('the newest thousand are kept, of however many', async () => {
  await store.add(several(0, 700))
  await store.add(several(700, 1_500))
  const kept = await store.read()
  expect(kept).toHaveLength(1_000)
  expect([kept.at(0), kept.at(-1)]).toEqual([stored(1_499), stored(500)])
})

it('what is sent again is there once', async () => {
  await store.add(several(0, 3))
  await store.add(several(1, 5))
  expect(await store.read()).toEqual(several(0, 5).reverse())
})

it('entries from before there was a sync are stored with it, and go with it to another place', async () => {
  let place: AuditStore | null = null
  const trail = new CommandTrail(() => place, noTrouble)
  trail.add(entry(1))
  expect(await trail.read()).toEqual([entry(1)])
  place = store
  trail.add(entry(2))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(2), entry(1)]), { timeout: 10_000 })
  // As after a reversal, which has another destination.
  await one.client.db('tandem_internal').dropDatabase()
  place = new AuditStore(one.cluster)
  trail.add(entry(3))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(3), entry(2), entry(1)]), {
    timeout: 10_000,
  })
  expect(await trail.read()).toEqual([entry(3), entry(2), entry(1)])
  trail.close()
})

it('a destination that does not answer is told of once and costs nothing', async () => {
  const away = testCluster('mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50')
  const troubles: unknown[] = []
  let place = new AuditStore(away)
  const trail = new CommandTrail(
    () => place,
    (error) => troubles.push(error),
  )
  trail.add(entry(1))
  await vi.waitFor(() => expect(troubles).toHaveLength(1), { timeout: 30_000 })
  place = store
  trail.add(entry(2))
  await vi.waitFor(async () => expect(await store.read()).toMatchObject([entry(2), entry(1)]), { timeout: 10_000 })
  expect(troubles).toHaveLength(1)
  trail.close()
  await away.close()
})
