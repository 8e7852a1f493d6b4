import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { RehearsalReport } from '../../src/rehearse/rehearsal-report.ts'
import { databaseNames } from '../support/databases.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { writesBlocked } from '../support/write-block-mode.ts'
import { type Run, startRehearse } from './rehearse-process.ts'

/**
 * Tests what docs/rehearse.md says about `--reverse` and `--stepDowns`. The primary of a set of two members is
 * followed by the other one, and that of a set of one member returns.
 */

let sets: { source: ReplicaSet; destination: ReplicaSet }
let clients: MongoClient[] = []

beforeAll(async () => {
  const [source, destination] = await Promise.all([startReplicaSet({ members: 2 }), startReplicaSet({ auth: true })])
  sets = { source, destination }
  clients = [source, destination].map(({ uri }) => new MongoClient(uri))
})
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()))
  await Promise.all([sets?.source.stop(), sets?.destination.stop()])
})
beforeEach(async () => {
  await Promise.all(clients.map((client) => emptyCluster(client)))
})

const rehearse = (args: string[], uris: { cluster1?: string } = {}): Run =>
  startRehearse(args, { cluster0: sets.source.uri, cluster1: sets.destination.uri, ...uris })

async function expectNothingLeft(): Promise<void> {
  for (const client of clients) {
    expect((await databaseNames(client)).filter((name) => !['admin', 'config', 'local'].includes(name))).toEqual([])
    expect(await writesBlocked(client)).toBe(false)
  }
}

const reversed = ['--reverse', '--blockWrites', '--minutes', '0.1', '--seed', '7']
/** For rehearsals that are interrupted or refused. */
const small = ['--megabytes', '1', '--minutes', '0.02']

describe('tandem rehearse --reverse --stepDowns', () => {
  it('elects primaries, commits, reverses, commits again, compares after each commit, and cleans up', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tandem-rehearse-'))
    try {
      const file = path.join(folder, 'report.md')
      const run = rehearse([...reversed, '--stepDowns', '--megabytes', '8', '--json', '--report', file])
      const code = await run.process.ended
      expect(`${code} ${run.err()}`).toMatch(/^0 /)
      const report = JSON.parse(run.out()) as RehearsalReport
      expect(report).toMatchObject({ passed: true, failure: null, notRehearsed: [] })
      expect(report.comparison).toMatchObject({ equal: true, differences: [] })

      const { stepDowns, reverse } = report
      expect(stepDowns.map(({ cluster, shard }) => [cluster, shard])).toEqual(
        ['cluster0', 'cluster1', 'cluster0', 'cluster1'].map((cluster) => [cluster, null]),
      )
      expect(stepDowns.slice(2).map(({ during }) => during)).toEqual(['following', 'following'])
      for (const { cluster, from, to, seconds } of stepDowns) {
        const hosts = cluster === 'cluster0' ? sets.source.hosts : sets.destination.hosts
        expect(hosts).toEqual(expect.arrayContaining([from, to]))
        expect(from === to).toBe(cluster === 'cluster1')
        expect(seconds).toBeGreaterThan(0)
      }
      // A member that has stepped down cannot be elected for 20 seconds, and the set has only one other member.
      const elected = await clients[0]?.db('local').collection('oplog.rs').find({ 'o.msg': 'new primary' }).toArray()
      const [first, second] = elected?.slice(-2).map(({ wall }) => Number(wall)) ?? []
      expect(Number(second) - Number(first)).toBeGreaterThanOrEqual(20_000)

      expect(reverse).toMatchObject({ formerSourceBlocked: true, comparison: { equal: true, differences: [] } })
      expect(reverse?.workload.steps).toBeGreaterThan(50)
      expect(reverse?.eventsApplied).toBeGreaterThan(50)
      expect(reverse?.comparison.documents).toBeGreaterThan(8_000)

      const text = readFileSync(file, 'utf8')
      expect(text).toMatch(
        /^- election on cluster0 while changes were followed took \d+\.\d\d s \(\S+ was primary, then \S+\)$/m,
      )
      expect(text).toContain('- nothing was lost in 4 elections')
      expect(text).toMatch(/## Reverse\n\n- write blocking: cluster0 blocks user writes after the commit/)
      expect(text).toMatch(/- reverse until changes were applied from cluster1 to cluster0: \d+\.\d\d s/)
      expect(text).not.toContain('FAILED')
      await expectNothingLeft()
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

  it('cleans up both clusters when it is interrupted in the reversed sync', async () => {
    const run = rehearse([...reversed, ...small])
    await vi.waitFor(() => expect(run.err()).toContain('reversed in'), { timeout: 300_000, interval: 20 })
    run.process.child.kill('SIGINT')
    expect(await run.process.ended).toBe(1)
    expect(run.out()).toContain('- FAILED: interrupted\n')
    await expectNothingLeft()
  })

  it('cleans up when it is interrupted in an election, but names and leaves a database that has appeared', async () => {
    const run = rehearse([...reversed, ...small, '--stepDowns'])
    await vi.waitFor(() => expect(run.err()).toContain('election on cluster0'), { timeout: 300_000, interval: 20 })
    await clients[0]?.db('late').collection('orders').insertOne({ n: 1 })
    run.process.child.kill('SIGINT')
    expect(await run.process.ended).toBe(1)
    expect(run.out()).toMatch(
      /- FAILED: interrupted; cluster0 has databases that the rehearsal did not create \(late\)/,
    )
    expect(await clients[0]?.db('late').collection('orders').countDocuments()).toBe(1)
    await Promise.all(clients.map((client) => client.db('late').dropDatabase()))
    await expectNothingLeft()
  })

  it('does not begin with --reverse if a cluster has other user databases, and leaves them', async () => {
    await clients[1]?.db('shop').collection('orders').insertOne({ n: 1 })
    const run = rehearse([...reversed, ...small])
    expect(await run.process.ended).toBe(2)
    expect(run.err()).toMatch(/--reverse syncs all databases, and cluster1 has shop; give two clusters without user/)
    expect(await databaseNames(clients[1] as MongoClient)).toContain('shop')
    expect(await clients[1]?.db('shop').collection('orders').countDocuments()).toBe(1)
    expect(await databaseNames(clients[0] as MongoClient)).not.toContain('mongosync_internal_rehearsal')
  })

  it('does not begin with --stepDowns if the user may not step a primary down', async () => {
    const cluster1 = await sets.destination.createUser('reader', 'secret', ['readWriteAnyDatabase', 'clusterMonitor'])
    const run = rehearse(['--stepDowns'], { cluster1 })
    expect(await run.process.ended).toBe(2)
    expect(run.err()).toMatch(
      /MissingPrivileges: --stepDowns needs the action replSetStateChange, which the user on cluster1 lacks; grant/,
    )
    await expectNothingLeft()
  })
})
