import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { compareClusters } from './compare.ts'
import { compareBoth } from './compare-both.ts'
import { type ReplicaSet, startReplicaSet } from './replica-set.ts'
import { seedData } from './seed-data.ts'
import { createWorkload } from './workload.ts'
import { archiveDatabase, workloadDatabases } from './workload-world.ts'

describe('workload', () => {
  let servers: ReplicaSet[]
  const uris = () => servers.map(({ uri }) => uri) as [string, string]

  beforeAll(async () => {
    servers = await Promise.all([startReplicaSet(), startReplicaSet()])
  })

  afterAll(async () => {
    await Promise.all((servers ?? []).map((server) => server.stop()))
  })

  beforeEach(async () => {
    for (const uri of uris()) {
      await using client = new MongoClient(uri)
      for (const name of [...workloadDatabases, archiveDatabase]) await client.db(name).dropDatabase()
    }
  })

  it.each([
    { seed: 1, ddl: true, transactions: true, scale: 0.2 },
    { seed: 'again', ddl: true, transactions: false, scale: 0 },
    { seed: 3, ddl: false, transactions: true, scale: 0 },
  ])('leaves the same bytes on two servers: %o', async ({ seed, ddl, transactions, scale }) => {
    const logs: string[][] = []
    const summaries = await Promise.all(
      uris().map(async (uri) => {
        const lines: string[] = []
        logs.push(lines)
        if (scale > 0) await seedData(uri, seed, scale)
        const workload = createWorkload({ uri, seed, ddl, transactions, log: (line) => lines.push(line) })
        await workload.runSteps(600)
        await workload.runSteps(200)
        return workload.summary()
      }),
    )
    expect(logs[1]).toEqual(logs[0])
    expect(summaries[1]).toEqual(summaries[0])
    expect(summaries[0]).toMatchObject({ steps: 800, transient: 0, blocked: false })
    expect((summaries[0]?.succeeded['create'] ?? 0) > 0).toBe(ddl)
    expect((summaries[0]?.succeeded['transaction'] ?? 0) > 0).toBe(transactions)
    const { differences, documents } = await compareBoth(...uris())
    expect(differences).toEqual([])
    expect(documents).toBeGreaterThan(50)
  })

  it('runs other operations with another seed', async () => {
    for (const [seed, uri] of uris().entries()) {
      await createWorkload({ uri, seed, ddl: true, transactions: true }).runSteps(50)
    }
    expect(await compareClusters(...uris())).toMatchObject({ equal: false })
  })

  it('runs at the given rate until it is stopped', async () => {
    const controller = new AbortController()
    const workload = createWorkload({ uri: uris()[0], seed: 5, ddl: false, transactions: true, opsPerSecond: 50 })
    const running = workload.run(controller.signal)
    await sleep(2000)
    controller.abort()
    await running
    expect(workload.summary().steps).toBeGreaterThan(5)
    expect(workload.summary().steps).toBeLessThan(150)
  })

  it('ends when the source blocks user writes', async () => {
    const [uri] = uris()
    await using client = new MongoClient(uri)
    const workload = createWorkload({ uri, seed: 6, ddl: true, transactions: true })
    const running = workload.run(AbortSignal.timeout(60_000))
    await sleep(1000)
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: true })
    try {
      await running
      expect(workload.summary().blocked).toBe(true)
    } finally {
      await client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
    }
  })
})
