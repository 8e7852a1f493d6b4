import { expect, it } from 'vitest'
import { StoppedError } from '../../src/domain/errors.ts'
import type { Journal } from '../../src/domain/journal.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { code } from '../../src/mongo/errors.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { failPoint } from '../support/fail-point.ts'
import { testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()

it('after an eviction the process acquires its lease again, and a delayed reply of the former term does not end the next term', async () => {
  const appName = 'tandem:a:incarnation'
  const cluster = testCluster(one.set.uri, appName)
  const lost: unknown[] = []
  const journal: Journal = (message, fields) => message === 'lease lost' && lost.push(fields)
  const context = { ...testContext(), journal }
  const lease = new Lease(cluster, 'delayed', { id: 'a', incarnation: 'incarnation' }, context)
  try {
    await lease.acquire()
    const losses: string[] = []
    lease.onLost = (reason) => losses.push(reason)
    const leases = one.client.db(metadataDatabase).collection<{ _id: string }>('leases')
    await leases.updateOne({ _id: 'delayed' }, { $set: { epoch: 2, buried: true, settled: 3 } })
    const data = { failCommands: ['update'], appName, blockConnection: true, blockTimeMS: 1_500 }
    await using point = await failPoint(one.client, 'failCommand', data, { times: 1 })
    const delayed = lease.verify()
    await point.reached()
    await lease.verify()
    expect(losses).toEqual(['evicted'])
    await lease.acquire()
    await delayed
    expect(losses).toEqual(['evicted'])
    expect(lost).toEqual([{ lease: 'delayed', epoch: 1, reason: 'evicted' }])
    expect(lease.held).toBe(true)
    expect(lease.epoch).toBe(3)
    lease.fence()
  } finally {
    context.stop()
    await lease.release()
    await cluster.close()
  }
})

it('a write of a lease term is stopped when the term ends, and the next term can write', async () => {
  const cluster = testCluster(one.set.uri, 'tandem:b:incarnation')
  const context = testContext()
  const lease = new Lease(cluster, 'ended', { id: 'b', incarnation: 'incarnation' }, context)
  const metadata = new Metadata(cluster, context)
  cluster.fence = () => lease.fence()
  let terms = 0
  lease.onTaken = () => {
    terms += 1
  }
  try {
    expect(lease.termSignal).toBeNull()
    await lease.acquire()
    const first = lease.termSignal as AbortSignal
    const data = { failCommands: ['update'], namespace: `${metadataDatabase}.instances`, errorCode: 262 }
    await using held = await failPoint(one.client, 'failCommand', data)
    const storing = metadata.saveInstance('b', { savedIn: 'the first term' }, first)
    await held.reached()
    const leases = one.client.db(metadataDatabase).collection<{ _id: string }>('leases')
    await leases.updateOne({ _id: 'ended' }, { $set: { epoch: 2, buried: true, settled: 3 } })
    await lease.verify()
    await expect(storing).rejects.toBeInstanceOf(StoppedError)
    expect([first.aborted, lease.termSignal]).toEqual([true, null])
    await lease.acquire()
    await held.release()
    expect(terms).toBe(2)
    await metadata.saveInstance('b', { savedIn: 'the next term' }, lease.termSignal as AbortSignal)
    expect((await metadata.loadInstances()).get('b')).toEqual({ savedIn: 'the next term' })
  } finally {
    context.stop()
    await lease.release()
    await cluster.close()
  }
})

it('when a process could not release its lease, its next term has another epoch, and the server executes the writes of that term', async () => {
  const appName = 'tandem:e:incarnation'
  const cluster = testCluster(one.set.uri, appName)
  const context = testContext()
  await readFacts(cluster)
  const documents = one.client.db('terms').collection<{ _id: number; term: number }>('documents')
  const nextTerm = async (): Promise<Lease> => {
    const lease = new Lease(cluster, 'not given back', { id: 'e', incarnation: 'incarnation' }, context)
    Object.assign(cluster, { fence: () => lease.fence(), sessions: lease.sessions })
    await lease.acquire()
    return lease
  }
  const write = (term: number) =>
    cluster.write('terms', { update: 'documents', updates: [{ q: { _id: 1 }, u: { _id: 1, term }, upsert: true }] })
  const first = await nextTerm()
  await write(1)
  const refused = { failCommands: ['update'], namespace: `${metadataDatabase}.leases`, errorCode: code.unauthorized }
  await using point = await failPoint(one.client, 'failCommand', refused)
  await first.release()
  await point.release()
  const second = await nextTerm()
  try {
    await write(2)
    // With the transaction numbers of the first term, the server would acknowledge this write as a repetition.
    expect(await documents.findOne()).toEqual({ _id: 1, term: 2 })
    expect([first.epoch, second.epoch]).toEqual([1, 2])
  } finally {
    context.stop()
    await second.release()
    await cluster.close()
  }
})

it('a release cancels a pending attempt to acquire the lease, and that attempt does not acquire the lease later', async () => {
  const cluster = testCluster(one.set.uri, 'tandem:c')
  const [holding, contending] = [testContext(), testContext()]
  const holder = new Lease(cluster, 'contended', { id: 'c', incarnation: 'one' }, holding)
  const contender = new Lease(cluster, 'contended', { id: 'c', incarnation: 'another' }, contending)
  try {
    await holder.acquire()
    const attempt = contender.acquire()
    const refused = expect(attempt).rejects.toBeInstanceOf(StoppedError)
    await contender.release()
    await contender.attemptEnded()
    await refused
    await holder.release()
    const leases = one.client.db(metadataDatabase).collection<{ _id: string; incarnation: string }>('leases')
    expect((await leases.findOne({ _id: 'contended' }))?.incarnation).toBe('one')
    // A new attempt can take the lease.
    await contender.acquire()
    expect(contender.held).toBe(true)
  } finally {
    for (const context of [holding, contending]) context.stop()
    await contender.release()
    await cluster.close()
  }
})
