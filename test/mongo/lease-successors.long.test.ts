import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Document } from 'mongodb'
import { afterAll, describe, expect, it, vi } from 'vitest'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { LeaseView } from '../../src/domain/owner.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { givenUp } from '../../src/mongo/lease-watch.ts'
import { failPoint } from '../support/fail-point.ts'
import { directUri } from '../support/replica-set-members.ts'
import { startProxy } from '../support/tcp-proxy.ts'
import { type TestContext, testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** Several processes take one lease one after the other. The first has left a write that the server still executes. */

const one = oneSet()
const closing: (() => Promise<unknown>)[] = []
const patience = { timeout: 20_000, interval: 20 }
/** This time ends well before the lease would expire by itself. */
const givenBackSoon = { timeout: 5_000, interval: 20 }
const portOf = (uri: string): number => Number(new URL(uri).port)
/** A successor polls the operations on the server several times within this time. */
const severalPollsMS = 300

afterAll(async () => {
  await Promise.all(closing.map((close) => close()))
})

const nameOf = (id: string): string => OwnershipStore.leaseName(id)
const leases = () => one.client.db(metadataDatabase).collection<{ _id: string } & Document>('leases')
const stored = async (id: string): Promise<Document> => (await leases().findOne({ _id: nameOf(id) })) as Document
const store = () => new OwnershipStore(one.cluster)

async function viewOf(id: string): Promise<LeaseView> {
  return (await store().read()).leases.find((lease) => lease.id === id) as LeaseView
}

interface Contender {
  lease: Lease
  context: TestContext
}

/**
 * Changes the stored start time of the holder's process. A successor then concludes that this process has ended, and does not
 * have to observe for a whole lease duration that the lease is not renewed.
 */
const proveEnded = (id: string) =>
  leases().updateOne({ _id: nameOf(id), process: { $type: 'object' } }, { $set: { 'process.startedAt': '1' } })

function contender(id: string, incarnation: string, uri = one.set.uri): Contender {
  const context = testContext()
  const cluster = testCluster(uri, `tandem:${id}:${incarnation}`)
  cluster.stopped = context.signal
  const lease = new Lease(cluster, nameOf(id), { id, incarnation }, context)
  closing.push(async () => {
    context.stop()
    await lease.release()
    await cluster.close()
  })
  return { lease, context }
}

interface LateWrite extends AsyncDisposable {
  end(): Promise<void>
}

/** Takes the lease as the first holder, stops that holder, and leaves one of its writes running on the server. */
async function lateWriteOf(id: string): Promise<LateWrite> {
  const first = contender(id, 'first')
  await first.lease.acquire()
  first.context.stop()
  await first.lease.release()
  const cluster = testCluster(one.set.uri, `tandem:${id}:first`)
  const hang = await failPoint(one.client, 'hangDuringBatchInsert', { nss: `app.of_${id}` })
  const write = cluster.write('app', { insert: `of_${id}`, documents: [{ _id: 1 }] })
  await hang.reached()
  const end = async (): Promise<void> => {
    await hang.release()
    await write
  }
  return {
    end,
    [Symbol.asyncDispose]: async () => {
      await end()
      await cluster.close()
    },
  }
}

/** Starts another process, which takes the lease, and kills it while it waits for the write of the first holder. */
async function killWhileTaking(id: string, incarnation = 'second'): Promise<void> {
  const script = fileURLToPath(new URL('./lease-holder.ts', import.meta.url))
  const args = ['--import', 'tsx', script, one.set.uri, nameOf(id), id, incarnation]
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] })
  await vi.waitFor(async () => expect(await stored(id)).toMatchObject({ incarnation }), patience)
  child.kill('SIGKILL')
  await once(child, 'exit')
}

/** Expects that the next process acquires the lease only after the delayed write has ended. */
async function expectToWait(id: string, late: LateWrite): Promise<void> {
  const next = contender(id, 'next')
  const acquiring = next.lease.acquire()
  await vi.waitFor(async () => expect(await stored(id)).toMatchObject({ incarnation: 'next' }), patience)
  await sleep(severalPollsMS)
  expect((await viewOf(id)).drained).toBe(1)
  await late.end()
  await acquiring
  next.lease.fence()
  const { epoch } = next.lease
  expect(await viewOf(id)).toMatchObject({ epoch, drained: epoch, predecessors: [] })
}

describe('a write that an ended process left running delays the next lease term', () => {
  it('for the successor of a successor that was killed while it waited', async () => {
    await using late = await lateWriteOf('twice')
    await killWhileTaking('twice')
    await expectToWait('twice', late)
  })

  it('for the third successor, when two successors were killed while they waited', async () => {
    await using late = await lateWriteOf('thrice')
    await killWhileTaking('thrice')
    await killWhileTaking('thrice', 'third')
    await expectToWait('thrice', late)
  })

  it('for the instances that evict a successor that was killed while it waited', async () => {
    await using late = await lateWriteOf('evicted')
    await killWhileTaking('evicted')
    await leases().updateOne({ _id: nameOf('evicted') }, { $set: { expiresAt: givenUp } })
    const eviction = store().evict(await viewOf('evicted'), 0, async () => {})
    await vi.waitFor(async () => expect(await viewOf('evicted')).toMatchObject({ epoch: 3, evicted: true }), patience)
    await sleep(severalPollsMS)
    expect((await viewOf('evicted')).drained).toBe(1)
    await late.end()
    await eviction
    expect(await viewOf('evicted')).toMatchObject({ drained: 4, predecessors: [] })
  })

  it('for the successor of a process that gave the lease back while it waited', async () => {
    await using late = await lateWriteOf('given back')
    const second = contender('given back', 'second')
    const acquiring = second.lease.acquire().catch((error: unknown) => error)
    await vi.waitFor(async () => expect(await stored('given back')).toMatchObject({ incarnation: 'second' }), patience)
    await second.lease.release()
    // `release` may be called before the second process receives the reply to the update that took the lease. `acquire`
    // then gives the lease back when the reply arrives.
    await vi.waitFor(
      async () => expect(await viewOf('given back')).toMatchObject({ epoch: 2, drained: 1, expired: true }),
      givenBackSoon,
    )
    second.context.stop()
    await acquiring
    await expectToWait('given back', late)
  })

  it('for the successor of a process that gave the lease back before its acquisition was acknowledged', async () => {
    await using late = await lateWriteOf('far')
    await using proxy = await startProxy('127.0.0.1', portOf(one.set.uris[0] as string), { delayMS: 200 })
    const second = contender('far', 'second', directUri(proxy.port))
    const acquiring = second.lease.acquire().catch((error: unknown) => error)
    await vi.waitFor(async () => expect(await stored('far')).toMatchObject({ incarnation: 'second' }), patience)
    expect(second.lease.epoch).toBe(0)
    await second.lease.release()
    expect(await acquiring).toBeInstanceOf(StoppedError)
    expect(await viewOf('far')).toMatchObject({ epoch: 2, drained: 1, expired: true })
    await expectToWait('far', late)
  })

  it('for the successor of a process that was stopped while it waited', async () => {
    await using late = await lateWriteOf('stopped')
    const second = contender('stopped', 'second')
    const acquiring = second.lease.acquire()
    const refused = expect(acquiring).rejects.toThrow(StoppedError)
    await vi.waitFor(async () => expect(await stored('stopped')).toMatchObject({ incarnation: 'second' }), patience)
    second.context.stop()
    await refused
    await second.lease.release()
    expect(await viewOf('stopped')).toMatchObject({ epoch: 2, drained: 1 })
    await expectToWait('stopped', late)
  })

  it('for the successor of a process of an earlier version, which stored only one predecessor', async () => {
    await using late = await lateWriteOf('earlier')
    await leases().updateOne(
      { _id: nameOf('earlier') },
      { $set: { incarnation: 'second', epoch: 2, predecessor: 'first' }, $unset: { predecessors: '' } },
    )
    expect((await viewOf('earlier')).predecessors).toEqual(['first'])
    await expectToWait('earlier', late)
  })
})

it('a lease does not list a predecessor whose writes have ended', async () => {
  const [first, second] = [contender('over', 'first'), contender('over', 'second')]
  await first.lease.acquire()
  await proveEnded('over')
  await second.lease.acquire()
  expect((await viewOf('over')).predecessors).toEqual([])
  // An earlier version stored only one predecessor, and kept it after its writes had ended.
  const earlierForm = { $set: { predecessor: 'first' }, $unset: { predecessors: '' } }
  await leases().updateOne({ _id: nameOf('over') }, earlierForm)
  expect((await viewOf('over')).predecessors).toEqual([])
})

it('a successor waits for one confirmation window if an earlier successor crashed before it had waited', async () => {
  const windowMS = 1_500
  const detector = { windowMS, holds: () => true, knows: async () => false }
  const first = contender('confirmed', 'first')
  await first.lease.acquire()
  // The second process took the lease without a proof that the first has ended, and crashed before it had waited.
  await leases().updateOne(
    { _id: nameOf('confirmed') },
    { $set: { incarnation: 'second', epoch: 2, predecessors: ['first'] } },
  )
  // The second process has certainly ended, so the third waits only because of the first.
  await proveEnded('confirmed')
  const context = testContext()
  const cluster = testCluster(one.set.uri, 'tandem:confirmed:third')
  const third = new Lease(cluster, nameOf('confirmed'), { id: 'confirmed', incarnation: 'third' }, context, detector)
  const since = performance.now()
  await third.acquire()
  expect(performance.now() - since).toBeGreaterThanOrEqual(windowMS - 10)
  await third.release()
  context.stop()
  await cluster.close()
})
