import { expect, it } from 'vitest'
import type { RehearsalReport } from '../../src/rehearse/rehearsal-report.ts'
import { databaseNames } from '../support/databases.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startRehearse } from './rehearse-process.ts'

/** docs/rehearse.md: `tandem rehearse` from a replica set of 5.0 to one of 6.0. */

const pair = pairedSets({ source: { version: '5.0' } })

const rehearse = (...args: string[]) =>
  startRehearse(args, { cluster0: pair.source.uri, cluster1: pair.destination.uri })

it('does not begin without --blockWrites, because a sync from 5.0 blocks writes on the destination', async () => {
  const run = rehearse('--minutes', '0.2', '--megabytes', '8')
  expect(await run.process.ended).toBe(2)
  expect(run.err()).toMatch(/a sync from 5\.0\.\d+ always blocks user writes on cluster1.* add --blockWrites/)
  expect((await databaseNames(pair.destinationClient)).filter((name) => /^tandem|^mongosync/.test(name))).toEqual([])
})

it('probes both clusters, runs a whole sync with a takeover and a commit, compares, reports and cleans up', async () => {
  await pair.sourceClient.db('untouched').collection('c').insertOne({ a: 1 })
  const run = rehearse('--minutes', '0.2', '--megabytes', '8', '--seed', '7', '--blockWrites', '--json')
  const code = await run.process.ended
  expect(`${code} ${run.err()}`).toMatch(/^0 /)
  const report = JSON.parse(run.out()) as RehearsalReport
  expect(report).toMatchObject({ passed: true, failure: null })
  expect(report.probes.filter(({ passed }) => !passed)).toEqual([])
  expect(report.clusters.cluster0.version).toMatch(/^5\.0\./)
  expect(report.clusters.cluster1.version).toMatch(/^6\.0\./)
  expect(report.sync?.dryRun.verdict).toBe('equal')
  expect(report.sync?.takeoverSeconds).toBeGreaterThan(0)
  expect(report.comparison).toMatchObject({ equal: true, differences: [] })
  expect(report.comparison?.documents).toBeGreaterThan(8_000)
  for (const client of [pair.sourceClient, pair.destinationClient])
    expect((await databaseNames(client)).filter((name) => /^tandem|^mongosync/.test(name))).toEqual([])
})
