import { expect, it } from 'vitest'
import { StoppedError } from '../../src/domain/errors.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { failPoint } from '../support/fail-point.ts'
import { testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()

it('a lease that was evicted is taken again, and a delayed answer of the term that is over does not end the next one', async () => {
  const appName = 'tandem:a:incarnation'
  const cluster = testCluster(one.set.uri, appName)
  const context = testContext()
  const lease = new Lease(cluster, 'belated', { id: 'a', incarnation: 'incarnation' }, context)
  try {
    await lease.acquire()
    const losses: string[] = []
    lease.onLost = (reason) => losses.push(reason)
    const leases = one.client.db('tandem_internal').collection<{ _id: string }>('leases')
    await leases.updateOne({ _id: 'belated' }, { $set: { epoch: 2, buried: true, settled: 3 } })
    const data = { failCommands: ['update'], appName, blockConnection: true, blockTimeMS: 1_500 }
    await using point = await failPoint(one.client, 'failCommand', data, { times: 1 })
    const belated = lease.verify()
    await point.reached()
    await lease.verify()
    expect(losses).toEqual(['buried'])
    await lease.acquire()
    await belated
    expect(losses).toEqual(['buried'])
    expect(lease.held).toBe(true)
    expect(lease.epoch).toBe(3)
    lease.fence()
  } finally {
    context.stop()
    await lease.release()
    await cluster.close()
  }
})

it('what is stored by a lease is told to stop when that life is over, and by the next one it is stored', async () => {
  const cluster = testCluster(one.set.uri, 'tandem:b:incarnation')
  const context = testContext()
  const lease = new Lease(cluster, 'ended', { id: 'b', incarnation: 'incarnation' }, context)
  const metadata = new Metadata(cluster, context)
  cluster.fence = () => lease.fence()
  let lives = 0
  lease.onTaken = () => {
    lives += 1
  }
  try {
    expect(lease.termSignal).toBeNull()
    await lease.acquire()
    const first = lease.termSignal as AbortSignal
    const data = { failCommands: ['update'], namespace: 'tandem_internal.instances', errorCode: 262 }
    await using held = await failPoint(one.client, 'failCommand', data)
    const storing = metadata.saveInstance('b', { told: 'by the first' }, first)
    await held.reached()
    const leases = one.client.db('tandem_internal').collection<{ _id: string }>('leases')
    await leases.updateOne({ _id: 'ended' }, { $set: { epoch: 2, buried: true, settled: 3 } })
    await lease.verify()
    await expect(storing).rejects.toBeInstanceOf(StoppedError)
    expect([first.aborted, lease.termSignal]).toEqual([true, null])
    await lease.acquire()
    await held.release()
    expect(lives).toBe(2)
    await metadata.saveInstance('b', { told: 'by the next' }, lease.termSignal as AbortSignal)
    expect((await metadata.loadInstances()).get('b')).toEqual({ told: 'by the next' })
  } finally {
    context.stop()
    await lease.release()
    await cluster.close()
  }
})

it('an attempt to take a lease that is given back meanwhile has ended then, and takes nothing later', async () => {
  const cluster = testCluster(one.set.uri, 'tandem:c')
  const [living, giving] = [testContext(), testContext()]
  const holder = new Lease(cluster, 'contended', { id: 'c', incarnation: 'one' }, living)
  const contender = new Lease(cluster, 'contended', { id: 'c', incarnation: 'another' }, giving)
  try {
    await holder.acquire()
    const attempt = contender.acquire()
    const refused = expect(attempt).rejects.toBeInstanceOf(StoppedError)
    await contender.release()
    await contender.attemptEnded()
    await refused
    await holder.release()
    const leases = one.client.db('tandem_internal').collection<{ _id: string; incarnation: string }>('leases')
    expect((await leases.findOne({ _id: 'contended' }))?.incarnation).toBe('one')
    // It may be taken later all the same.
    await contender.acquire()
    expect(contender.held).toBe(true)
  } finally {
    for (const context of [living, giving]) context.stop()
    await contender.release()
    await cluster.close()
  }
})
