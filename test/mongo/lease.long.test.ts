import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { FatalError, StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { TransientReplyError } from '../../src/mongo/errors.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { slowness } from '../support/slowness.ts'
import { testCluster, testContext } from './clusters.ts'

/** These tests run concurrently, because they mostly wait for a lease of ten seconds to expire. */

let set: ReplicaSet
let client: MongoClient
const closing: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  set = await startReplicaSet()
  client = new MongoClient(set.uri)
})

afterAll(async () => {
  await Promise.all(closing.map((close) => close()))
  await client.close()
  await set.stop()
})

let incarnations = 0

/** Returns a lease with its own incarnation and connections, like the lease of another process on the same host. */
function contender(name: string, id: string): Lease {
  const incarnation = `incarnation-${incarnations++}`
  const context = testContext()
  const cluster = testCluster(set.uri, `tandem:${id}:${incarnation}`)
  const lease = new Lease(cluster, name, { id, incarnation }, context)
  closing.push(async () => {
    context.stop()
    await lease.release()
    await cluster.close()
  })
  return lease
}

/** Starts a process that holds the lease until the process is killed. */
async function holder(name: string, id: string): Promise<{ child: ChildProcess; epoch: number }> {
  const script = fileURLToPath(new URL('./lease-holder.ts', import.meta.url))
  const child = spawn(process.execPath, ['--import', 'tsx', script, set.uri, name, id, `process-${incarnations++}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  closing.push(async () => child.kill('SIGKILL'))
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  return { child, epoch: Number(line.toString()) }
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL')
  await once(child, 'exit')
}

async function waitsFor(acquiring: Promise<void>, milliseconds: number): Promise<boolean> {
  const winner = await Promise.race([acquiring.then(() => 'acquired'), delay(milliseconds, 'waiting')])
  return winner === 'waiting'
}

const leases = () => client.db(metadataDatabase).collection<{ _id: string } & Document>('leases')
const expectFenced = (lease: Lease) => expect(() => lease.fence()).toThrow(TransientReplyError)

describe.concurrent('a lease', () => {
  it('is taken by the second process when the first gives it back, with a higher epoch', async () => {
    const [first, second] = [contender('given back', 'a'), contender('given back', 'b')]
    expectFenced(first)
    await first.acquire()
    expect([first.epoch, first.holder]).toEqual([1, 'a'])
    first.fence()

    const acquiring = second.acquire()
    expect(await waitsFor(acquiring, 1_500)).toBe(true)
    expect(second.holder).toBe('a')
    expectFenced(second)
    await first.release()
    expectFenced(first)
    await acquiring
    expect([second.epoch, second.holder]).toEqual([2, 'b'])
  })

  it('stores an id that looks like a field path as a text, and is renewed under that id', async () => {
    const lease = contender('dollar', '$x.$y')
    await lease.acquire()
    const stored = await client.db(metadataDatabase).collection<{ _id: string }>('leases').findOne({ _id: 'dollar' })
    expect(stored).toMatchObject({ owner: '$x.$y', incarnation: expect.stringContaining('incarnation-') })
    await lease.verify()
    expect(lease.held).toBe(true)
  })

  it('can be used as soon as it is taken, while the process that gave it back still runs', async () => {
    const [first, second] = [contender('handed over', 'a'), contender('handed over', 'b')]
    await first.acquire()
    // By then the driver of the first process monitors the server with an awaitable hello. It is no write, so nothing waits for it.
    await delay(4_000)
    await first.release()
    const since = performance.now()
    await second.acquire()
    second.fence()
    expect(performance.now() - since).toBeLessThan(2_000 * (await slowness()))
  })

  it('of a process that was killed is taken over by another instance after it has expired, and not before', async () => {
    const { child, epoch } = await holder('expired', 'a')
    await kill(child)
    const killedAt = performance.now()
    const other = contender('expired', 'b')
    const acquiring = other.acquire()
    expect(await waitsFor(acquiring, 5_000)).toBe(true)
    await acquiring
    expect(performance.now() - killedAt).toBeLessThan(13_000)
    expect(other.epoch).toBe(epoch + 1)
    other.fence()
  })

  it('of a process that was killed is taken over at once by the same instance after a restart', async () => {
    const { child, epoch } = await holder('restarted', 'a')
    const successor = contender('restarted', 'a')
    const acquiring = successor.acquire()
    // The holder still runs, so the successor must wait.
    expect(await waitsFor(acquiring, 1_000)).toBe(true)
    await kill(child)
    const killedAt = performance.now()
    await acquiring
    expect(performance.now() - killedAt).toBeLessThan(3_000 * (await slowness()))
    expect(successor.epoch).toBe(epoch + 1)
  })

  it('is held longer than its duration when it is renewed, and no other process takes it meanwhile', async () => {
    const [first, second] = [contender('renewed', 'a'), contender('renewed', 'b')]
    await first.acquire()
    expect(await waitsFor(second.acquire(), 11_500)).toBe(true)
    first.fence()
    expect(first.epoch).toBe(1)
  })

  it('that another process has taken is lost: the holder is notified and its fence rejects writes', async () => {
    const lease = contender('lost', 'a')
    await lease.acquire()
    const lost = new Promise<string>((resolve) => {
      lease.onLost = resolve
    })
    await leases().updateOne({ _id: 'lost' }, { $set: { owner: 'b', incarnation: 'x', epoch: 7 } })
    expect(await lost).toBe('taken')
    expectFenced(lease)
    expect(lease.holder).toBeNull()
    expect(await leases().findOne({ _id: 'lost' })).toMatchObject({ owner: 'b', epoch: 7 })
  })

  it('that another process holds does not delay the end of an instance that is stopping', async () => {
    const first = contender('stopping', 'a')
    await first.acquire()
    const context = testContext()
    const cluster = testCluster(set.uri)
    closing.push(() => cluster.close())
    const second = new Lease(cluster, 'stopping', { id: 'b', incarnation: 'x' }, context)
    const acquiring = second.acquire()
    await delay(300)
    context.stop()
    await expect(acquiring).rejects.toThrow(StoppedError)
  })

  it('can be acquired again by the process that gave it back, and is then renewed', async () => {
    const [first, second] = [contender('again', 'a'), contender('again', 'b')]
    await first.acquire()
    await first.release()
    await first.acquire()
    first.fence()
    expect(await waitsFor(second.acquire(), 1_000)).toBe(true)
  })
})

describe.concurrent('a position', () => {
  it('is written by the holder of the newest epoch, and not by a holder of an earlier epoch', async () => {
    const cluster = testCluster(set.uri)
    closing.push(() => cluster.close())
    const metadata = new Metadata(cluster, testContext())
    const at = (seconds: number) => ({
      kind: 'token' as const,
      token: { _data: String(seconds) },
      time: clusterTime(seconds, 1),
    })
    expect(await metadata.loadPosition(3)).toBeNull()
    await metadata.savePosition(3, 1, { kind: 'time', time: clusterTime(5, 1) })
    expect(await metadata.loadPosition(3)).toEqual({ kind: 'time', time: clusterTime(5, 1) })
    await metadata.savePosition(3, 1, at(6))
    await metadata.savePosition(3, 2, at(7))
    const refused = await metadata.savePosition(3, 1, at(8)).catch((error) => error)
    expect(refused).toBeInstanceOf(FatalError)
    expect(refused.failure).toBe('LeaseLost')
    expect(await metadata.loadPosition(3)).toEqual(at(7))
    await metadata.savePosition(3, 2, at(9))
    expect(await metadata.loadPosition(3)).toEqual(at(9))
  })
})

describe.concurrent('without the destination', () => {
  it('a lease lapses and its fence rejects writes; when the destination is back, the lease is renewed', async () => {
    const admin = client.db('admin')
    const context = testContext()
    const cluster = testCluster(set.uri, 'cut off')
    const lease = new Lease(cluster, 'lapsed', { id: 'a', incarnation: 'x' }, context)
    closing.push(async () => {
      await lease.release()
      await cluster.close()
    })
    await lease.acquire()
    cluster.fence = () => lease.fence()
    const write = () => cluster.write('app', { insert: 'lapsed', documents: [{}] })
    await write()
    const cut = { failCommands: ['update'], appName: 'cut off', closeConnection: true }
    await admin.command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data: cut })
    const since = performance.now()
    await write()
    while (performance.now() - since < 12_000) {
      await delay(100)
      try {
        lease.fence()
      } catch {
        break
      }
    }
    const lapsed = performance.now() - since
    // A successor may take the lease ten seconds after its last renewal.
    expect(lapsed).toBeLessThan(8_500)
    expect(lapsed).toBeGreaterThan(3_000)
    await expect(write()).rejects.toThrow(TransientReplyError)
    expect(await client.db('app').collection('lapsed').countDocuments()).toBe(2)

    await admin.command({ configureFailPoint: 'failCommand', mode: 'off' })
    while (performance.now() - since < 20_000) {
      await delay(100)
      try {
        lease.fence()
        break
      } catch {}
    }
    await write()
    expect(lease.epoch).toBe(1)
  })
})

describe.concurrent('a write of a process that was killed', () => {
  it('delays the successor while the destination still executes it', async () => {
    const admin = client.db('admin')
    const hang = { nss: 'app.writes_of_hanging' }
    await admin.command({ configureFailPoint: 'hangDuringBatchInsert', mode: 'alwaysOn', data: hang })
    const { child } = await holder('hanging', 'a')
    const under = { 'command.insert': 'writes_of_hanging', active: true }
    const underWay = () => admin.aggregate([{ $currentOp: {} }, { $match: under }]).toArray()
    while ((await underWay()).length === 0) await delay(20)
    await kill(child)
    const successor = contender('hanging', 'a')
    const acquiring = successor.acquire()
    const waited = await waitsFor(acquiring, 2_000)
    const hung = (await underWay()).length
    await admin.command({ configureFailPoint: 'hangDuringBatchInsert', mode: 'off' })
    expect({ waited, hung }).toEqual({ waited: true, hung: 1 })
    await acquiring
    expect(await underWay()).toEqual([])
    successor.fence()
  })
})
