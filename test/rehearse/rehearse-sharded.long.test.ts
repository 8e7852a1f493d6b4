import { expect, it } from 'vitest'
import type { RehearsalReport } from '../../src/rehearse/rehearsal-report.ts'
import { databaseNames } from '../support/databases.ts'
import { ShardedPair } from '../support/sharded-pair.ts'
import { startRehearse } from './rehearse-process.ts'

/** Tests what docs/rehearse.md says about `tandem rehearse` between two sharded clusters. */

const pair = new ShardedPair({}, {})

it('probes both clusters, runs a whole sync with a takeover and a commit, compares, reports and cleans up', async () => {
  await pair.sourceClient.db('untouched').collection('c').insertOne({ a: 1 })
  const uris = { cluster0: pair.sourceUri, cluster1: pair.destinationUri }
  const run = startRehearse(['--minutes', '0.2', '--megabytes', '8', '--seed', '7', '--blockWrites', '--json'], uris)
  const code = await run.process.ended
  expect(`${code} ${run.err()}`).toMatch(/^0 /)
  const report = JSON.parse(run.out()) as RehearsalReport
  expect(report).toMatchObject({ passed: true, failure: null })
  expect(report.probes.filter(({ passed }) => !passed)).toEqual([])
  for (const cluster of ['cluster0', 'cluster1'] as const) {
    expect(report.clusters[cluster]).toMatchObject({ topology: 'sharded cluster', shards: 2 })
  }
  expect(report.sync?.dryRun.verdict).toBe('equal')
  expect(report.sync?.takeoverSeconds).toBeGreaterThan(0)
  expect(report.comparison).toMatchObject({ equal: true, differences: [] })
  expect(report.comparison?.documents).toBeGreaterThan(8_000)
  for (const client of [pair.sourceClient, pair.destinationClient]) {
    const own = (await databaseNames(client)).filter((name) => /^tandem/.test(name))
    expect(own).toEqual([])
    await client.db('untouched').collection<{ n: number }>('after').insertOne({ n: 1 })
  }
  expect(await pair.destinationClient.db('untouched').collection('c').countDocuments()).toBe(0)
})

it('steps down the primary of each shard, and reverses the sync', async () => {
  const uris = { cluster0: pair.sourceUri, cluster1: pair.destinationUri }
  const args = ['--minutes', '0.2', '--megabytes', '8', '--seed', '7', '--blockWrites', '--reverse', '--stepDowns']
  const run = startRehearse([...args, '--json'], uris)
  const code = await run.process.ended
  expect(`${code} ${run.err()}`).toMatch(/^0 /)
  const report = JSON.parse(run.out()) as RehearsalReport
  expect(report).toMatchObject({ passed: true, failure: null, notRehearsed: [] })
  const shards = [pair.source, pair.destination].flatMap((cluster, at) =>
    cluster.shards.map(({ name }) => [`cluster${at}`, name]),
  )
  expect(report.stepDowns.map(({ cluster, shard }) => [cluster, shard])).toEqual([...shards, ...shards])
  // A router does not report whether the shards block user writes.
  expect(report.reverse).toMatchObject({ formerSourceBlocked: null, comparison: { equal: true, differences: [] } })
  expect(report.reverse?.eventsApplied).toBeGreaterThan(50)
  for (const client of [pair.sourceClient, pair.destinationClient]) {
    expect((await databaseNames(client)).filter((name) => /^tandem|^mongosync/.test(name))).toEqual([])
    await client.db('untouched').collection<{ n: number }>('after').insertOne({ n: 1 })
  }
})
