import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Document } from 'mongodb'
import { afterAll, describe, expect, it, vi } from 'vitest'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import type { LeaseView } from '../../src/domain/owner.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { givenUp } from '../../src/mongo/lease-watch.ts'
import { failPoint } from '../support/fail-point.ts'
import { type TestContext, testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** Several that have one lease after another, where the first left a write that the server still works on. */

const one = oneSet()
const closing: (() => Promise<unknown>)[] = []
const patience = { timeout: 20_000, interval: 20 }
/** For several looks at what the server works on. */
const severalLooksMS = 300

afterAll(async () => {
  await Promise.all(closing.map((close) => close()))
})

const nameOf = (id: string): string => OwnershipStore.leaseName(id)
const leases = () => one.client.db('tandem_internal').collection<{ _id: string } & Document>('leases')
const stored = async (id: string): Promise<Document> => (await leases().findOne({ _id: nameOf(id) })) as Document
const store = () => new OwnershipStore(one.cluster)

async function viewOf(id: string): Promise<LeaseView> {
  return (await store().read()).leases.find((lease) => lease.id === id) as LeaseView
}

interface Contender {
  lease: Lease
  context: TestContext
}

/** A process that has ended is proven dead: a successor need not wait until it has seen the lease unrenewed. */
const proveDead = (id: string) =>
  leases().updateOne({ _id: nameOf(id), process: { $type: 'object' } }, { $set: { 'process.startedAt': '1' } })

function contender(id: string, incarnation: string): Contender {
  const context = testContext()
  const cluster = testCluster(one.set.uri, `tandem:${id}:${incarnation}`)
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

/** The first holder, dead, and its write. */
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

/** The second takes the lease and is killed while it waits for the first one's write. */
async function dieTaking(id: string, incarnation = 'second'): Promise<void> {
  const script = fileURLToPath(new URL('./lease-holder.ts', import.meta.url))
  const args = ['--import', 'tsx', script, one.set.uri, nameOf(id), id, incarnation]
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] })
  await vi.waitFor(async () => expect(await stored(id)).toMatchObject({ incarnation }), patience)
  child.kill('SIGKILL')
  await once(child, 'exit')
}

/** The next one comes to have the lease only when the late write has ended. */
async function expectToWait(id: string, late: LateWrite): Promise<void> {
  const next = contender(id, 'next')
  const acquiring = next.lease.acquire()
  await vi.waitFor(async () => expect(await stored(id)).toMatchObject({ incarnation: 'next' }), patience)
  await sleep(severalLooksMS)
  expect((await viewOf(id)).drained).toBe(1)
  await late.end()
  await acquiring
  next.lease.fence()
  const { epoch } = next.lease
  expect(await viewOf(id)).toMatchObject({ epoch, drained: epoch, predecessors: [] })
}

describe('the write of a dead process is waited for', () => {
  it('by the successor of a successor that was killed while it waited', async () => {
    await using late = await lateWriteOf('twice')
    await dieTaking('twice')
    await expectToWait('twice', late)
  })

  it('by the third successor, when two were killed while they waited', async () => {
    await using late = await lateWriteOf('thrice')
    await dieTaking('thrice')
    await dieTaking('thrice', 'third')
    await expectToWait('thrice', late)
  })

  it('by the instances that evict a successor that was killed while it waited', async () => {
    await using late = await lateWriteOf('buried')
    await dieTaking('buried')
    await leases().updateOne({ _id: nameOf('buried') }, { $set: { expiresAt: givenUp } })
    const burial = store().evict(await viewOf('buried'), 0, async () => {})
    await vi.waitFor(async () => expect(await viewOf('buried')).toMatchObject({ epoch: 3, evicted: true }), patience)
    await sleep(severalLooksMS)
    expect((await viewOf('buried')).drained).toBe(1)
    await late.end()
    await burial
    expect(await viewOf('buried')).toMatchObject({ drained: 4, predecessors: [] })
  })

  it('by the successor of one that gave the lease back while it waited', async () => {
    await using late = await lateWriteOf('given back')
    const second = contender('given back', 'second')
    const acquiring = second.lease.acquire().catch((error: unknown) => error)
    await vi.waitFor(async () => expect(await stored('given back')).toMatchObject({ incarnation: 'second' }), patience)
    await second.lease.release()
    expect(await viewOf('given back')).toMatchObject({ epoch: 2, drained: 1, expired: true })
    second.context.stop()
    await acquiring
    await expectToWait('given back', late)
  })

  it('by the successor of one that was told to stop while it waited', async () => {
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

  it('by the successor of an earlier version, which stored one predecessor', async () => {
    await using late = await lateWriteOf('earlier')
    await leases().updateOne(
      { _id: nameOf('earlier') },
      { $set: { incarnation: 'second', epoch: 2, predecessor: 'first' }, $unset: { predecessors: '' } },
    )
    expect((await viewOf('earlier')).predecessors).toEqual(['first'])
    await expectToWait('earlier', late)
  })
})

it('a predecessor that has been waited for is waited for no more', async () => {
  const [first, second] = [contender('over', 'first'), contender('over', 'second')]
  await first.lease.acquire()
  await proveDead('over')
  await second.lease.acquire()
  expect((await viewOf('over')).predecessors).toEqual([])
  // An earlier version let its one predecessor stand.
  const settled = { $set: { predecessor: 'first' }, $unset: { predecessors: '' } }
  await leases().updateOne({ _id: nameOf('over') }, settled)
  expect((await viewOf('over')).predecessors).toEqual([])
})

it('one who may still believe that the lease is its own is given its time by every successor until it had it', async () => {
  const windowMS = 1_500
  const belief = { windowMS, holds: () => true, knows: async () => false }
  const first = contender('believing', 'first')
  await first.lease.acquire()
  // The second took it on hearsay, and died at once; that it is dead is proven.
  await leases().updateOne(
    { _id: nameOf('believing') },
    { $set: { incarnation: 'second', epoch: 2, predecessors: ['first'] } },
  )
  const context = testContext()
  const cluster = testCluster(one.set.uri, 'tandem:believing:third')
  const third = new Lease(cluster, nameOf('believing'), { id: 'believing', incarnation: 'third' }, context, belief)
  const since = performance.now()
  await third.acquire()
  expect(performance.now() - since).toBeGreaterThanOrEqual(windowMS - 10)
  await third.release()
  context.stop()
  await cluster.close()
})
