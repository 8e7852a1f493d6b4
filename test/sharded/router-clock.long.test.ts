import { afterAll, beforeAll, expect, test } from 'vitest'
import { type ShardedClusters, startShardedClusters } from '../faults/clusters.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import type { ShardedCluster } from '../support/sharded-cluster.ts'
import { ShardedWorkload } from '../support/sharded-workload.ts'
import { type SteppedClock, startSteppedClock } from '../support/stepped-clock.ts'

/**
 * Each cluster has one router whose clock is right and one whose clock is a minute behind. One instance uses the first of both
 * clusters, and the other instance the second. A router sends its own clock with aggregations and updates.
 */

const behindSeconds = 60
let clock: SteppedClock
let clusters: ShardedClusters

beforeAll(async () => {
  clock = await startSteppedClock()
  clock.step(-behindSeconds)
  const routers = { mongoses: 2, mongosClocks: [null, clock] }
  clusters = await startShardedClusters(routers, routers)
})
afterAll(async () => {
  await clusters?.[Symbol.asyncDispose]()
  clock?.close()
})

const routerOf = ({ mongoses }: ShardedCluster, index: number): string => mongoses[index]?.uri as string
const connections = (index: number) => ({
  cluster0: routerOf(clusters.source, index),
  cluster1: routerOf(clusters.destination, index),
})

test('two instances see each other as alive, pass commands on, follow and commit, although a router of each has a clock that is a minute behind', async () => {
  await using workload = disposable(new ShardedWorkload(clusters.source.uri, clusters.source, 'router clock'))
  await workload.create()
  await using instances = await startInstances(['right'], connections(0))
  await instances.start('behind', connections(1))
  await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await instances.post('start', { source: 'cluster0', destination: 'cluster1' }))
  await workload.run(60)
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit', 120)
  for (const id of ['right', 'behind']) expect(await livenessSeenBy(instances, id)).toEqual(['alive', 'alive'])
  const sendToAll = async (id: string, command: string): Promise<unknown> =>
    (await instances.members.get(id)?.post(`all/${command}`))?.body
  const accepted = { success: true, answers: { right: { success: true }, behind: { success: true } } }
  for (const id of ['behind', 'right']) {
    expect(await sendToAll(id, 'pause')).toEqual(accepted)
    await instances.allReach(({ state }) => state === 'PAUSED', 'PAUSED')
    expect(await sendToAll(id, 'resume')).toEqual(accepted)
    await instances.allReach(({ state }) => state === 'RUNNING', 'RUNNING')
  }
  await workload.run(60)
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit again', 120)
  expect(await sendToAll('behind', 'commit')).toEqual(accepted)
  await instances.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
  expect((await compareBoth(clusters.source.uri, clusters.destination.uri)).differences).toEqual([])
})

async function livenessSeenBy(instances: Instances, id: string): Promise<string[]> {
  const report = await instances.instances(instances.members.get(id))
  return report.instances.map(({ status }) => status)
}

function disposable(workload: ShardedWorkload): ShardedWorkload & AsyncDisposable {
  return Object.assign(workload, { [Symbol.asyncDispose]: () => workload.close() })
}
