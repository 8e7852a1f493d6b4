import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { hostname } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Document } from 'mongodb'
import { afterAll, describe, expect, it } from 'vitest'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** A successor does not mistake these facts for a proof that the holder of a lease has ended. */

const one = oneSet()
const closing: (() => Promise<unknown>)[] = []
afterAll(async () => {
  await Promise.all(closing.map((close) => close()))
})

const leases = () => one.client.db(metadataDatabase).collection<{ _id: string } & Document>('leases')
let incarnations = 0

function contender(name: string, id: string): Lease {
  const context = testContext()
  const incarnation = `proof-${incarnations++}`
  const cluster = testCluster(one.set.uri, `tandem:${id}:${incarnation}`)
  const lease = new Lease(cluster, name, { id, incarnation }, context)
  closing.push(async () => {
    context.stop()
    await lease.release()
    await cluster.close()
  })
  return lease
}

/** Starts a process that holds the lease and renews it until the process is killed. */
async function holder(name: string): Promise<ChildProcess> {
  const script = fileURLToPath(new URL('./lease-holder.ts', import.meta.url))
  const args = ['--import', 'tsx', script, one.set.uri, name, 'a', `holder-${incarnations++}`]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  closing.push(async () => child.kill('SIGKILL'))
  await once(child.stdout as NodeJS.ReadableStream, 'data')
  return child
}

const isTaken = async (lease: Lease, withinMS: number): Promise<boolean> =>
  await Promise.race([lease.acquire().then(() => true), delay(withinMS, false)])

describe('a running holder of the same id', () => {
  it.each([
    ['has the same pid in another container of a pod of the same name', { pidNamespace: 'pid:[1]', pid: process.pid }],
    ['has a pid that no process of this container has', { pidNamespace: 'pid:[1]', pid: 0x7fff_fff0 }],
    ['runs on another node, to which its pod was moved', { bootID: 'another', pid: process.pid }],
  ])('keeps its lease when it %s', async (what, elsewhere) => {
    await holder(what)
    const { process: identity } = (await leases().findOne({ _id: what })) as Document
    // Earlier releases stored the host and the pid, and concluded from them whether the process had ended.
    const former = { host: hostname(), pid: elsewhere.pid }
    await leases().updateOne({ _id: what }, { $set: { process: { ...identity, ...elsewhere }, ...former } })
    expect(await isTaken(contender(what, 'a'), 3_000)).toBe(false)
  })

  it('keeps its lease when an earlier release has stored only its host and pid', async () => {
    await holder('old form')
    const former = { host: hostname(), pid: process.pid }
    await leases().updateOne({ _id: 'old form' }, { $set: former, $unset: { process: '' } })
    expect(await isTaken(contender('old form', 'a'), 3_000)).toBe(false)
  })
})

describe('a clock of the destination that steps ahead, as after a failover to another member', () => {
  const name = OwnershipStore.leaseName('stepped')
  /** Makes the stored expiry lie in the past, as a clock that steps ahead does. */
  const step = () => leases().updateOne({ _id: name }, [{ $set: { expiresAt: { $add: ['$$NOW', -1] } } }])

  it('does not expire a lease that is renewed: no instance evicts the lease or takes it over', async () => {
    const lease = contender(name, 'stepped')
    await lease.acquire()
    const store = new OwnershipStore(one.cluster)
    await step()
    const [view] = (await store.read()).leases.filter(({ id }) => id === 'stepped')
    expect(view).toMatchObject({ epoch: 1, expired: false })
    const other = contender(name, 'stepped')
    const taken = isTaken(other, 2_000)
    const until = performance.now() + 1_900
    while (performance.now() < until) {
      await step()
      await delay(50)
    }
    expect(await taken).toBe(false)
    await lease.verify()
    lease.fence()
    expect(lease.epoch).toBe(1)
  })
})
