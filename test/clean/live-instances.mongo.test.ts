import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { liveInstances } from '../../src/clean/live-instances.ts'
import type { Liveness } from '../../src/coordination/liveness.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { oneSet } from '../mongo/one-set.ts'

/** Tests which instances `tandem clean` considers alive if it cannot ask the kernel whether their process has ended. */

const one = oneSet()
/** A lease duration that is shorter than in the product, for tests that observe a lease for its whole duration. */
const shortMS = 2_000
/** A lease duration that is longer than in the product, for tests of renewals and heartbeats, which may be late on a busy machine. */
const longMS = 60_000
const leases = () => one.client.db(metadataDatabase).collection<{ _id: string; expiresAt: Date }>('leases')
let renewing = new AbortController()
let repeated: Promise<void> = Promise.resolve()

beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
  renewing = new AbortController()
})
afterEach(async () => {
  renewing.abort()
  await repeated
})

async function lease(id: string, expiresAt = new Date(Date.now() - 3_600_000)): Promise<void> {
  const fields = { owner: id, incarnation: `${id}-process`, process: null, epoch: 1, expiresAt, schemaVersion: 1 }
  await leases().replaceOne({ _id: id }, fields, { upsert: true })
}

/** Repeats the work until the test ends. */
function keepOn(work: (at: number) => Promise<unknown>): void {
  const { signal } = renewing
  repeated = (async () => {
    for (let at = 1; !signal.aborted; at++) {
      await work(at)
      await sleep(200)
    }
  })()
}

const beat = (id: string) => ({
  id,
  incarnation: `${id}-1`,
  coordinator: false,
  partitions: [],
  progress: idleProgress,
})

async function observe({ mayLoseHeartbeats = false, heartbeats = [] as Liveness[], durationMS = longMS } = {}) {
  const waitedFor: string[][] = []
  const began = performance.now()
  const alive = await liveInstances({
    databases: [{ cluster: one.cluster, database: metadataDatabase }],
    heartbeats,
    mayLoseHeartbeats,
    durationMS,
    onWait: (ids) => waitedFor.push(ids),
  })
  return { alive, waitedFor, elapsedMS: performance.now() - began }
}

describe('a lease', () => {
  it('that was released needs no wait', async () => {
    await lease('a', new Date(0))
    expect(await observe()).toMatchObject({ alive: [], waitedFor: [] })
  })

  it('that is not renewed for its whole duration belongs to no living instance, also if its stored expiry has long passed', async () => {
    await lease('a')
    const { alive, waitedFor, elapsedMS } = await observe({ durationMS: shortMS })
    expect([alive, waitedFor]).toEqual([[], [['a']]])
    expect(elapsedMS).toBeGreaterThan(shortMS)
  })

  it('that is renewed belongs to a living instance, also if its stored expiry has passed', async () => {
    await lease('a', new Date(0))
    await lease('b')
    keepOn((at) => lease('b', new Date(at * 1_000)))
    const { alive, elapsedMS } = await observe()
    expect(alive).toEqual(['b'])
    expect(elapsedMS).toBeLessThan(longMS)
  })

  it.each([
    ['that is not renewed', undefined],
    ['that was given back', new Date(0)],
  ])('%s is observed for its whole duration if heartbeats may be lost', async (_, expiresAt) => {
    await lease('a', expiresAt)
    const { alive, waitedFor, elapsedMS } = await observe({ mayLoseHeartbeats: true, durationMS: shortMS })
    expect([alive, waitedFor]).toEqual([[], [['a']]])
    expect(elapsedMS).toBeGreaterThan(shortMS)
  })

  it('that other instances have evicted is observed too, because its holder may not know of the eviction', async () => {
    await lease('a', new Date(0))
    await leases().updateOne({ _id: 'a' }, { $set: { buried: true } })
    expect(await observe({ durationMS: shortMS })).toMatchObject({ alive: [], waitedFor: [['a']] })
  })

  it('belongs to a living instance whose heartbeats return after they were lost', async () => {
    await lease('a')
    const store = new MongoLiveness(one.cluster, { ttlMS: longMS })
    keepOn(async (at) => {
      if (at > 10) await store.publish(beat('a'))
    })
    const { alive, elapsedMS } = await observe({ mayLoseHeartbeats: true, heartbeats: [store] })
    expect(alive).toEqual(['a'])
    expect(elapsedMS).toBeLessThan(longMS)
  })
})

describe('a heartbeat', () => {
  it('that is followed by another one belongs to a living instance, also without a lease', async () => {
    const store = new MongoLiveness(one.cluster, { ttlMS: longMS })
    await store.publish(beat('a'))
    keepOn(() => store.publish(beat('a')))
    expect(await observe({ heartbeats: [store] })).toMatchObject({ alive: ['a'], waitedFor: [['a']] })
  })

  it('that is not followed by another one for the duration of a lease does not belong to a living instance', async () => {
    const store = new MongoLiveness(one.cluster, { ttlMS: shortMS })
    await store.publish(beat('a'))
    expect(await observe({ heartbeats: [store], durationMS: shortMS })).toMatchObject({ alive: [], waitedFor: [['a']] })
  })
})
