import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, it, vi } from 'vitest'
import { accepted } from '../support/commits.ts'
import { type InsightsReading, readAsInsights } from '../support/insights-reading.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** The log of a whole sync has the lines that MongoDB's Mongosync Insights reads from mongosync's log. */

const pair = pairedSets()
const patience = { timeout: 60_000, interval: 100 }

it('a whole run can be read from the log as Mongosync Insights reads it', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tandem-insights-'))
  try {
    const things = pair.sourceClient.db('app').collection<{ _id: number; value?: number }>('things')
    await things.insertMany(Array.from({ length: 2_000 }, (_, _id) => ({ _id })))
    await things.createIndex({ value: 1 })
    const reading = async (): Promise<InsightsReading> =>
      readAsInsights(await readFile(path.join(folder, 'tandem.log'), 'utf8'))
    await using tandem = await pair.startInstance({ extraArgs: ['--logPath', folder] })
    await startSync(tandem, { verification: { enabled: true } })
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
    await things.updateMany({ _id: { $lt: 100 } }, { $set: { value: 1 } })
    await things.insertMany(Array.from({ length: 50 }, (_, index) => ({ _id: 10_000 + index })))
    await tandem.waitFor(({ totalEventsApplied }) => (totalEventsApplied ?? 0) >= 150, {
      timeoutSeconds: 60,
      what: 'changes applied',
    })
    await vi.waitFor(
      async () => expect((await reading()).partitions.at(-1)).toEqual({ written: 1, total: 1 }),
      patience,
    )
    expect(await tandem.post('commit')).toEqual(accepted)
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
    await tandem.stop()

    const read = await reading()
    expect(read.versions).toMatchObject([{ version: expect.any(String), os: 'linux', arch: expect.any(String) }])
    expect(read.options).toMatchObject([{ loadLevel: 3, verbosity: 'info', logPath: folder, token: false }])
    expect(read.startBodies).toEqual([{ source: 'cluster0', destination: 'cluster1', verification: { enabled: true } }])
    expect(read.phases).toEqual([
      'initializing collections and indexes',
      'initializing partitions',
      'collection copy',
      'change event application',
      'commit handler called',
    ])
    expect(read.replication.at(-1)).toMatchObject({ lagTimeSeconds: 0, totalEventsApplied: expect.any(Number) })
    expect(Number(read.replication.at(-1)?.['totalEventsApplied'])).toBeGreaterThanOrEqual(150)
    expect(read.replication.some((line) => typeof line['eventApplicationRatePerSecond'] === 'number')).toBe(true)
    expect(read.verifierLags.source.length).toBeGreaterThan(0)
    expect(read.verifierLags.destination.length).toBe(read.verifierLags.source.length)
    expect(read.crudRates.some((rate) => rate > 0)).toBe(true)
    const operations = (name: string): number =>
      read.operations.reduce((sum, line) => sum + Number((line[name] as Line | undefined)?.['numOperations'] ?? 0), 0)
    for (const name of [
      'CollectionCopySourceRead',
      'CollectionCopyDestinationWrite',
      'CEASourceRead',
      'CEADestinationWrite',
    ])
      expect([name, operations(name)]).toEqual([name, expect.toSatisfy((count: number) => count > 0)])
    expect(read.operations.some(({ sourcePingLatencyMs }) => Number(sourcePingLatencyMs) >= 1)).toBe(true)
    const [first, last] = [read.progresses[0], read.progresses.at(-1)]
    expect(first).toMatchObject({ state: 'RUNNING', canWrite: false })
    expect(last).toMatchObject({ state: 'COMMITTED', canWrite: true, indexBuilding: { indexesBuilt: 1 } })
    expect(read.responses.map(({ uri }) => uri)).toEqual(
      expect.arrayContaining(['/api/v1/start', '/api/v1/progress', '/api/v1/commit']),
    )
    // As long as neither the state nor the phase changes, tandem writes these lines only once a minute.
    expect(read.replication.length).toBeLessThan(12)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

type Line = Record<string, unknown>
