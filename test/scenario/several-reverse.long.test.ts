import { afterEach, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { givenUp } from '../../src/mongo/lease-watch.ts'
import { failPoint } from '../support/fail-point.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { patience, ReversiblePair, reversible, setBlocking, things } from '../support/reversible-pair.ts'
import type { Row } from '../support/rows.ts'
import { startTandem } from '../support/tandem-process.ts'

/** Reversals of a sync that several instances share. See test/contract.md. */

const pair = new ReversiblePair({ oplogSizeMB: 256 })
let running: Instances | null = null

afterEach(async () => {
  await running?.stop()
  running = null
})

const ready = (all: Instances) => all.allReach(({ canCommit }) => canCommit, 'ready to commit')

async function commit(all: Instances): Promise<void> {
  await ready(all)
  expectAccepted(await all.post('commit'))
  await all.allReach(({ state, canWrite }) => state === 'COMMITTED' && canWrite === true, 'COMMITTED')
}

/** Starts instances a and b, and commits a reversible sync with them. */
async function committed(): Promise<Instances> {
  const all = await startInstances(['a', 'b'], { cluster0: pair.left.uri, cluster1: pair.right.uri })
  running = all
  await all.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await all.post('start', { source: 'cluster0', destination: 'cluster1', ...reversible }))
  await commit(all)
  return all
}

it('facts 2.5: two instances commit, reverse, commit and reverse again without data loss', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }])
  const all = await committed()
  await things(pair.rightClient).insertOne({ _id: 'between' })
  await things(pair.rightClient).updateOne({ _id: 1 }, { $set: { changed: true } })

  expectAccepted(await all.post('reverse'))
  const reversed = await ready(all)
  for (const progress of reversed) {
    expect(progress).toMatchObject({ state: 'RUNNING', canWrite: false, info: 'change event application' })
    expect(progress.directionMapping?.Source).toMatch(/^cluster1: /)
  }
  expect(new Set(reversed.map(({ coordinatorID }) => coordinatorID)).size).toBe(1)
  expect(await pair.generations()).toEqual([1, null])
  await things(pair.rightClient).insertMany(Array.from({ length: 100 }, (_, at) => ({ _id: `after ${at}` })))
  await vi.waitFor(async () => expect(await things(pair.leftClient).countDocuments()).toBe(104), patience)
  await vi.waitFor(async () => {
    const { instances } = await all.instances()
    expect(instances.map((one) => one.partitions.length)).toEqual([8, 8])
  }, patience)
  await commit(all)
  expect(await things(pair.leftClient).findOne({ _id: 1 })).toEqual({ _id: 1, changed: true })
  await pair.expectEqual()

  await things(pair.leftClient).deleteMany({ _id: /^after/ })
  expectAccepted(await all.post('reverse'))
  await commit(all)
  expect(await pair.generations()).toEqual([null, 2])
  await pair.expectEqual()
})

it('README: a reversal waits until every live instance has received it, and names those that have not', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }])
  const all = await committed()
  const [a, b] = [all.members.get('a'), all.members.get('b')]
  expect(await a?.post('reverse')).toMatchObject({ status: 200 })
  await vi.waitFor(async () => {
    const { warnings } = (await a?.progress()) ?? {}
    expect(warnings).toContainEqual('the reversal waits for instances that have not received it yet: b')
  }, patience)
  expect([(await a?.progress())?.state, (await b?.progress())?.state]).toEqual(['REVERSING', 'COMMITTED'])
  expect(await pair.generations()).toEqual([null, 0])
  expect(await b?.post('reverse')).toMatchObject({ status: 200 })
  await commit(all)
  await pair.expectEqual()
  await setBlocking(pair.rightClient, false)
})

it('README: an instance that was down while the others reversed joins the reversed sync by itself', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }, { _id: 2 }])
  const all = await committed()
  await all.kill9('b')
  await things(pair.rightClient).insertOne({ _id: 'between' })
  expectAccepted(await all.post('reverse'))
  await ready(all)
  const back = await all.start('b')
  await back.waitFor(({ state }) => state === 'RUNNING', { timeoutSeconds: 5, what: 'RUNNING' })
  expect((await back.progress()).directionMapping?.Source).toMatch(/^cluster1: /)
  await things(pair.rightClient).insertMany(Array.from({ length: 50 }, (_, at) => ({ _id: `after ${at}` })))
  await vi.waitFor(async () => expect(await things(pair.leftClient).countDocuments()).toBe(53), patience)
  await commit(all)
  await pair.expectEqual()
})

/**
 * Holds the lease of an instance until `release` is called. According to the stored lease, all writes of its holder have
 * drained, so no other instance waits for them. `requested` resolves when a process has tried to take the lease.
 */
async function holdLease(id: string): Promise<{ requested: () => Promise<unknown>; release: () => Promise<unknown> }> {
  const leases = pair.rightClient.db(metadataDatabase).collection<Row>('leases')
  const _id = `instance:${id}`
  const held = { owner: id, incarnation: 'x', epoch: 100, settled: 101, takesWork: false }
  const renew = (fields: object) =>
    leases.updateOne({ _id }, { $set: { ...fields, expiresAt: new Date(Date.now() + 10_000) } }, { upsert: true })
  await renew({ ...held, process: null })
  const renewing = setInterval(() => void renew({}), 1_000)
  const data = {
    failCommands: ['find'],
    namespace: `${metadataDatabase}.leases`,
    blockConnection: true,
    blockTimeMS: 1,
  }
  const point = await failPoint(pair.rightClient, 'failCommand', data)
  return {
    requested: async () => {
      await point.reached()
      await point.release()
    },
    release: async () => {
      clearInterval(renewing)
      await leases.updateOne({ _id }, { $set: { expiresAt: givenUp } })
    },
  }
}

async function writable(): Promise<void> {
  await pair.rightClient.db('app').collection<Row>('writable').insertOne({ _id: 1 })
}

it('an instance whose start waits for its lease while the others reverse does not start the former direction again', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }, { _id: 2 }])
  const uris = { cluster0: pair.left.uri, cluster1: pair.right.uri }
  const all = await startInstances(['a'], uris)
  running = all
  const forward = { source: 'cluster0', destination: 'cluster1', ...reversible }
  expectAccepted(await all.post('start', forward))
  await commit(all)
  // A sync in the former direction would drop this view, because the former source does not have it.
  await pair.rightClient.db('app').createCollection('seen', { viewOn: 'things', pipeline: [] })
  const lease = await holdLease('b')
  const b = await startTandem({ ...uris, id: 'b' })
  try {
    const starting = b.post('start', forward)
    await lease.requested()
    expectAccepted(await all.post('reverse'))
    await ready(all)
    await lease.release()
    expect(await starting).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    expect((await b.progress()).state).toBe('IDLE')
    await writable()
    expect(await pair.rightClient.db('app').listCollections({ name: 'seen' }).toArray()).toHaveLength(1)

    expect(await b.post('start', { ...forward, source: 'cluster1', destination: 'cluster0' })).toMatchObject({
      status: 200,
    })
    all.members.set('b', b)
    await commit(all)
    await pair.expectEqual()
  } finally {
    await b.stop()
  }
})

it('a restarted instance that waits for its lease while the others reverse joins the reversed sync', async () => {
  await things(pair.leftClient).insertMany([{ _id: 1 }, { _id: 2 }])
  const all = await committed()
  await all.kill9('b')
  // The test changes the snapshot of b to that of an instance that was killed just before it learned of the commit.
  const instances = pair.rightClient.db(metadataDatabase).collection<Row>('instances')
  const snapshot = JSON.parse((await instances.findOne({ _id: 'b' }))?.['snapshot'] as string)
  await instances.updateOne(
    { _id: 'b' },
    { $set: { snapshot: JSON.stringify({ ...snapshot, commitRequested: true }) } },
  )
  const lease = await holdLease('b')
  const b = await all.start('b')
  await lease.requested()
  all.members.delete('b')
  expectAccepted(await all.post('reverse'))
  await ready(all)
  await lease.release()
  all.members.set('b', b)
  const progress = await b.waitFor(({ state }) => state === 'RUNNING', { timeoutSeconds: 30, what: 'RUNNING' })
  expect(progress.directionMapping?.Source).toMatch(/^cluster1: /)
  await writable()
  await commit(all)
  await pair.expectEqual()
})
