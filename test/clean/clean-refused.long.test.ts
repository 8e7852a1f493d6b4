import { afterEach, describe, expect, it, vi } from 'vitest'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { startRedis } from '../support/redis-server.ts'
import { CleanedPair } from './cleaned-pair.ts'

/** `tandem clean` refuses while an instance is alive, and on clusters that it cannot attribute to one sync. */

const pair = new CleanedPair()

describe('while an instance is alive', () => {
  it('refuses with the name of the instance, also if the instance is paused, and changes nothing', async () => {
    await using tandem = await pair.startedSync({ id: 'shardA' })
    for (const isPaused of [false, true]) {
      if (isPaused) {
        await tandem.post('pause')
        await tandem.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 30, what: 'PAUSED' })
      }
      const before = await pair.footprints()
      for (const yes of [false, true]) {
        expect(await pair.clean({ yes })).toMatchObject({
          code: 4,
          lines: [],
          err: expect.stringMatching(
            /error: instance shardA is alive\. Stop all instances .* Nothing was changed\.\n$/,
          ),
        })
      }
      expect(await pair.footprints()).toEqual(before)
    }
  })
})

describe('if an instance renews its lease after clean has observed that all have ended', () => {
  afterEach(() => void vi.restoreAllMocks())

  it('refuses, and says that the other instances may have been evicted', async () => {
    const tandem = await pair.startedSync({ id: 'shardA' })
    await tandem.kill9()
    const leases = pair.stored('leases')
    const term = { incarnation: 'b', process: null, epoch: 1, expiresAt: new Date(1) }
    const other = { _id: 'instance:shardB', owner: 'shardB', ...term, schemaVersion: 1 }
    await pair.writeBlocked(() => leases.insertOne(other))
    const evict = OwnershipStore.prototype.evict
    vi.spyOn(OwnershipStore.prototype, 'evict').mockImplementation(async function (
      this: OwnershipStore,
      lease,
      ...rest
    ) {
      const renewed = { $set: { expiresAt: new Date(Date.now() + 3_600_000) } }
      if (lease.id === 'shardB') await pair.writeBlocked(() => leases.updateOne({ _id: other._id }, renewed))
      return await evict.call(this, lease, ...rest)
    })
    expect(await pair.clean({ yes: true })).toMatchObject({
      code: 4,
      lines: [],
      err: expect.stringMatching(
        /error: instance shardB is alive\. Stop all instances of this sync, then run clean again\. Other instances may have been evicted already\. Nothing else was changed\.\n$/,
      ),
    })
    expect(await leases.findOne({ _id: 'instance:shardA' })).toMatchObject({ buried: true })
    expect(await pair.blocked()).toEqual([false, true])
  })
})

describe('if the instances use Redis', () => {
  it('asks for the address of Redis, and refuses while an instance sends heartbeats there', async () => {
    await using redis = await startRedis()
    const tandem = await pair.startedSync({ id: 'shardA', env: { TANDEM_REDIS: redis.url } })
    expect(await pair.clean({ yes: true })).toMatchObject({
      code: 4,
      err: expect.stringMatching(/give its address with --redis/),
    })
    expect(await pair.clean({ yes: true, redis: redis.url })).toMatchObject({
      code: 4,
      err: expect.stringMatching(/instance shardA is alive/),
    })
    await tandem.kill9()
    expect((await pair.clean({ yes: true, redis: redis.url })).code).toBe(0)
    await pair.expectClean()
  })
})

describe('without a stored sync', () => {
  it('lifts a block only if --unblock names the cluster', async () => {
    await pair.sets.destinationClient.db('admin').command({ setUserWriteBlockMode: 1, global: true })
    expect(await pair.clean({ yes: true })).toMatchObject({
      code: 0,
      lines: [
        'sync: none is stored on these clusters',
        expect.stringMatching(
          /^left alone: user writes on cluster1 stay blocked: no sync .*; --unblock cluster1 allows them/,
        ),
        'nothing to clean up',
      ],
    })
    expect(await pair.blocked()).toEqual([false, true])
    expect((await pair.clean({ yes: true, unblock: ['cluster1'] })).code).toBe(0)
    expect(await pair.blocked()).toEqual([false, false])
  })

  it('refuses the state of a sync between other clusters', async () => {
    const tandem = await pair.startedSync()
    await tandem.stop()
    const changed = { $set: { sourceIdentity: 'another' } }
    await pair.writeBlocked(() => pair.stored('sync').updateOne({ _id: 'sync' }, changed))
    const before = await pair.footprints()
    expect(await pair.clean({ yes: true })).toMatchObject({
      code: 2,
      lines: [],
      err: expect.stringMatching(
        /^error: ClusterIdentityChanged: cluster1 holds the state of a sync between clusters other than/,
      ),
    })
    expect(await pair.footprints()).toEqual(before)
  })

  it('refuses while a cluster keeps the record of a reversed sync with another cluster', async () => {
    const tandem = await pair.startedSync()
    await tandem.stop()
    const record = await pair.stored('sync').findOne({ _id: 'sync' })
    const move = { ...record, _id: 'sync', destinationIdentity: 'another', generation: 1 }
    await pair.stored('moves', pair.sets.sourceClient).insertOne(move)
    const before = await pair.footprints()
    expect(await pair.clean({ yes: true })).toMatchObject({
      code: 2,
      lines: [],
      err: expect.stringMatching(
        /^error: ClusterIdentityChanged: cluster0 holds the record of a reversed sync between/,
      ),
    })
    expect(await pair.footprints()).toEqual(before)
  })

  it('says that a cluster cannot be reached, without its credentials', async () => {
    const cluster1 = 'mongodb://root:hunter2@127.0.0.1:1/?directConnection=true'
    const { code, err } = await pair.clean({ cluster1, yes: true })
    expect([code, err]).toEqual([2, expect.stringMatching(/^error: cluster1 does not answer .*; check that cluster/)])
    expect(err).not.toMatch(/root|hunter2/)
    const invalid = await pair.clean({ cluster1: `${cluster1}&tls=certainly`, yes: true })
    expect(invalid.code).toBe(2)
    expect(invalid.err).not.toMatch(/root|hunter2/)
  })

  it('refuses two connection strings that lead to one cluster', async () => {
    expect(await pair.clean({ cluster1: pair.sets.source.uri })).toMatchObject({
      code: 2,
      err: expect.stringMatching(/same cluster/),
    })
  })
})
