import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import process from 'node:process'
import { describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { RehearsalReport } from '../../src/rehearse/rehearsal-report.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { writesBlocked } from '../support/write-block-mode.ts'
import { startAlteringProxy } from './altering-proxy.ts'
import { type Run, startRehearse } from './rehearse-process.ts'

/** Tests what docs/rehearse.md says about `tandem rehearse` between two replica sets. */

const pair = pairedSets()

const rehearse = (args: string[], uris: { cluster0?: string; cluster1?: string } = {}): Run =>
  startRehearse(args, { cluster0: pair.source.uri, cluster1: pair.destination.uri, ...uris })

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

async function expectNothingLeft(): Promise<void> {
  for (const client of [pair.sourceClient, pair.destinationClient]) {
    const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
    const names = databases.map(({ name }) => name)
    expect(names.filter((name) => !['admin', 'config', 'local', 'untouched'].includes(name))).toEqual([])
    expect(await writesBlocked(client)).toBe(false)
  }
}

describe('tandem rehearse', () => {
  it('probes both clusters, runs a whole sync with a takeover and a commit, compares, reports and cleans up', async () => {
    await pair.sourceClient.db('untouched').collection('c').insertOne({ a: 1 })
    const folder = mkdtempSync(path.join(tmpdir(), 'tandem-rehearse-'))
    try {
      const file = path.join(folder, 'report.md')
      const args = ['--minutes', '0.1', '--megabytes', '8', '--seed', '7', '--blockWrites', '--json', '--report', file]
      const run = rehearse(args)
      const code = await run.process.ended
      expect(`${code} ${run.err()}`).toMatch(/^0 /)
      const report = JSON.parse(run.out()) as RehearsalReport
      expect(report).toMatchObject({ passed: true, failure: null, seed: 7 })
      expect(report.probes.filter(({ passed }) => !passed)).toEqual([])
      expect(report.probes.length).toBeGreaterThanOrEqual(15)
      const { version } = await pair.sourceClient.db('admin').admin().buildInfo()
      expect(report.clusters.cluster0).toMatchObject({ version, topology: 'replica set', shards: null })
      const { sync, comparison, estimate } = report
      expect(sync?.dryRun.verdict).toBe('equal')
      expect(sync?.workload.steps).toBeGreaterThan(100)
      expect(sync?.takeoverSeconds).toBeGreaterThan(0)
      expect(comparison).toMatchObject({ equal: true, differences: [] })
      expect(comparison?.documents).toBeGreaterThan(8_000)
      expect(estimate?.dataBytes).toBeGreaterThan(0)
      const text = readFileSync(file, 'utf8')
      expect(text).toContain('# Rehearsal of tandem')
      expect(text).toContain('comparison of all bytes: equal')
      expect(text).not.toContain('FAILED')
      await expectNothingLeft()
      expect(await pair.sourceClient.db('untouched').collection('c').countDocuments()).toBe(1)
      expect(await pair.destinationClient.db('untouched').collection('c').countDocuments()).toBe(0)
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

  it('names the difference when a server behaves unexpectedly, and then runs no sync', async () => {
    await using proxy = await startAlteringProxy(
      Number(pair.source.hosts[0]?.split(':')[1]),
      'documentKey',
      'documentKez',
    )
    const cluster0 = `mongodb://127.0.0.1:${proxy.port}/?directConnection=true`
    const run = rehearse(['--minutes', '0.1', '--megabytes', '1'], { cluster0 })
    expect(await run.process.ended).toBe(1)
    expect(run.out()).toMatch(/FAILED: events of documents \(source\): expected an event insert with documentKey/)
    expect(run.out()).toContain('a probe failed, so no sync was run')
    await expectNothingLeft()
  })

  it('cleans up when it is interrupted in the middle of the sync', async () => {
    const run = rehearse(['--minutes', '30', '--megabytes', '2', '--prefix', 'other'])
    await vi.waitFor(() => expect(run.err()).toContain('copied in'), { timeout: 120_000, interval: 100 })
    run.process.child.kill('SIGINT')
    expect(await run.process.ended).toBe(1)
    expect(run.out()).toContain('FAILED: interrupted')
    await expectNothingLeft()
  })

  it('leaves no instance behind when it is killed', async () => {
    const run = rehearse(['--minutes', '30', '--megabytes', '2'])
    await vi.waitFor(() => expect(run.err()).toContain('sync started'), { timeout: 120_000, interval: 100 })
    const { pid } = run.process
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number)
    expect(children).toHaveLength(2)
    await run.process.kill()
    await vi.waitFor(() => expect(children.filter(isAlive)).toEqual([]), { timeout: 60_000, interval: 100 })
  })

  it('does not touch a sync that was stored during the rehearsal, nor the databases of another rehearsal', async () => {
    const run = rehearse(['--minutes', '30', '--megabytes', '2'])
    await vi.waitFor(() => expect(run.err()).toContain('probes passed'), { timeout: 120_000, interval: 20 })
    const records = pair.destinationClient.db(metadataDatabase).collection<{ _id: string }>('sync')
    const configuration = { includeNamespaces: [{ database: 'theirs' }] }
    await records.updateOne({ _id: 'sync' }, { $set: { configuration } }, { upsert: true })
    const claims = pair.sourceClient.db('tandem_rehearsal_probes').collection<{ _id: string }>('claim')
    await claims.updateOne({ _id: 'claim' }, { $set: { token: 'of another rehearsal' } })
    run.process.child.kill('SIGINT')
    expect(await run.process.ended).toBe(1)
    expect(await records.findOne({ _id: 'sync' })).toMatchObject({ configuration })
    expect(await claims.countDocuments()).toBe(1)
  })

  it('refuses to begin if a sync is stored, databases with its prefix exist, both URIs lead to one cluster, or writes are blocked', async () => {
    const refusal = async (args: string[], uris = {}): Promise<string> => {
      const run = rehearse(args, uris)
      expect(await run.process.ended).toBe(2)
      return run.err()
    }
    await pair.destinationClient.db(metadataDatabase).collection('sync').insertOne({})
    expect(await refusal([])).toMatch(
      /cluster1 has the database mongosync_internal_tandem, so a sync of tandem is stored there/,
    )
    await pair.destinationClient.db(metadataDatabase).dropDatabase()
    await pair.sourceClient.db('mine_one').collection('c').insertOne({})
    expect(await refusal(['--prefix', 'mine'])).toMatch(
      /cluster0 already has the databases mine_one; give another --prefix/,
    )
    expect(await refusal([], { cluster1: pair.source.uri })).toMatch(/lead to the same server; give two clusters/)
    expect(await pair.sourceClient.db('mine_one').collection('c').countDocuments()).toBe(1)
    await pair.sourceClient.db('mine_one').dropDatabase()

    const block = (global: boolean) => pair.destinationClient.db('admin').command({ setUserWriteBlockMode: 1, global })
    await block(true)
    try {
      expect(await refusal([])).toMatch(/UserWritesBlocked/)
    } finally {
      await block(false)
    }
    await expectNothingLeft()
  })
})
