import { expect, it, onTestFinished } from 'vitest'
import { applicationName } from '../../src/mongo/predecessors.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** `writesEnded` finds a write that waits for a collection lock by the application name of its connection. */

const one = oneSet()

it.each([1, 104, 105, 256])(
  'connections are found by their incarnation if the id has %d characters',
  async (length) => {
    const incarnation = `00ff${length}`
    const cluster = testCluster(one.set.uri, applicationName('i'.repeat(length), incarnation))
    onTestFinished(() => cluster.close())
    await cluster.read('admin', { ping: 1 })
    const currentOp = { $currentOp: { allUsers: true, idleConnections: true } }
    const ofIncarnation = { $match: { appName: { $regex: `:${incarnation}$` } } }
    const found = await one.client.db('admin').aggregate([currentOp, ofIncarnation]).toArray()
    expect(found).not.toEqual([])
  },
)
