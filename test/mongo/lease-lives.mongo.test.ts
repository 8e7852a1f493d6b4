import { expect, it } from 'vitest'
import { Lease } from '../../src/mongo/lease.ts'
import { failPoint } from '../support/fail-point.ts'
import { testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()

it('a lease that was buried is taken anew, and a belated answer of the life that is over does not end the next one', async () => {
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
