import { afterEach, describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { loadBulk } from '../support/load-bulk.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { seedData } from '../support/seed-data.ts'
import { createWorkload } from '../support/workload.ts'

const pair = pairedSets()
let instances: Instances | null = null

afterEach(async () => {
  await instances?.stop()
  instances = null
})

const body = { source: 'cluster0', destination: 'cluster1' }
const begin = async (...ids: string[]): Promise<Instances> => {
  instances = await startInstances(ids, { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  await vi.waitFor(() => instances?.allReach((progress) => progress.state === 'IDLE', 'IDLE'), { timeout: 30_000 })
  return instances
}

const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0)

describe('several instances', () => {
  it('share one migration under a workload with DDL, and all commit', async () => {
    await seedData(pair.source.uri, 7, 0.3)
    await loadBulk(pair.source.uri, 'bulk', 40_000)
    const workload = createWorkload({ uri: pair.source.uri, seed: 7, ddl: true, transactions: true })
    await workload.runSteps(20)
    const started = await begin('a', 'b', 'c')
    expectAccepted(await started.post('start', body))
    await workload.runSteps(150)
    const ready = await started.allReach((progress) => progress.canCommit, 'canCommit', 120)

    const coordinators = new Set(ready.map(({ coordinatorID }) => coordinatorID))
    expect(coordinators.size).toBe(1)
    expect(['a', 'b', 'c']).toContain([...coordinators][0])
    const report = await started.instances()
    expect(report.instances.map(({ mongosyncID, status }) => [mongosyncID, status])).toEqual([
      ['a', 'alive'],
      ['b', 'alive'],
      ['c', 'alive'],
    ])
    const partitions = report.instances.flatMap((one) => one.partitions).sort((one, other) => one - other)
    expect(partitions).toEqual(Array.from({ length: 16 }, (_, partition) => partition))
    for (const one of report.instances) expect(one.partitions.length).toBeGreaterThanOrEqual(5)
    // A drop that the instances are still applying reduces the total bytes, on one instance sooner than on another.
    await vi.waitFor(
      async () => {
        const { instances, totals } = await started.instances()
        const copies = instances.map(({ progress }) => progress.collectionCopy)
        const [total] = copies.map((copy) => copy?.estimatedTotalBytes)
        expect(copies.map((copy) => copy?.estimatedTotalBytes)).toEqual([total, total, total])
        expect(sum(copies.map((copy) => copy?.estimatedCopiedBytes ?? 0))).toBe(total)
        expect(totals.percent).toBe(100)
      },
      { timeout: 20_000, interval: 200 },
    )

    await workload.runSteps(50)
    expectAccepted(await started.post('commit'))
    const canWrite = started.allReach((progress) => progress.canWrite === true, 'canWrite', 60)
    await canWrite
    await started.allReach((progress) => progress.state === 'COMMITTED', 'COMMITTED', 60)
    const { equal, differences } = await compareBoth(pair.source.uri, pair.destination.uri)
    expect(differences).toEqual([])
    expect(equal).toBe(true)
  })

  it('apply all DDL that happened during a pause with a few barriers instead of one for each change', async () => {
    const app = pair.sourceClient.db('app')
    await app.createCollection('first')
    const started = await begin('a', 'b')
    expectAccepted(await started.post('start', body))
    await started.allReach((progress) => progress.canCommit, 'canCommit', 60)
    // An instance that owns all partitions is also ready to commit, and would apply all DDL alone, without a barrier.
    const share = async (): Promise<number[]> =>
      (await started.instances()).instances.map((one) => one.partitions.length)
    await vi.waitFor(async () => expect(await share()).toEqual([8, 8]), { timeout: 60_000, interval: 100 })
    expectAccepted(await started.post('pause'))
    await started.allReach((progress) => progress.state === 'PAUSED', 'PAUSED', 60)
    const before = await barriersSoFar()
    // An insert after each DDL command separates it from the next one in the oplog.
    for (let at = 0; at < changes; at++) {
      const collection = app.collection<{ _id: number }>(`c${at % 20}`)
      if (at < 20) await app.createCollection(`c${at}`)
      else await collection.createIndex({ [`field${at}`]: 1 })
      await collection.insertOne({ _id: at })
    }
    await app.collection('c3').rename('renamed')
    await app.collection('c4').drop()
    expectAccepted(await started.post('resume'))
    await started.allReach((progress) => progress.state === 'RUNNING' && progress.canCommit, 'canCommit', 60)
    expectAccepted(await started.post('commit'))
    await started.allReach((progress) => progress.state === 'COMMITTED', 'COMMITTED', 90)
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
    const barriers = (await barriersSoFar()) - before
    expect(barriers).toBeGreaterThan(0)
    // One read of the catalog covers all changes. Each instance learns that only at a barrier, so a few more barriers follow.
    expect(barriers).toBeLessThanOrEqual(changes / 10)
  })
})

const changes = 60

/** Returns the number of barriers that instances have reached, according to the oplog of the destination. */
async function barriersSoFar(): Promise<number> {
  const made = { op: 'i', ns: `${metadataDatabase}.barriers` }
  return await pair.destinationClient.db('local').collection('oplog.rs').countDocuments(made)
}
