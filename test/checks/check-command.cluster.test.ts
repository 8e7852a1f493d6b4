import { describe, expect, it } from 'vitest'
import type { Finding } from '../../src/domain/finding.ts'
import { fillOplog } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { footprint } from '../support/refusals.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'

/** `POST /api/v1/check` reports all findings at once and changes nothing. */

const pair = pairedSets()
const body = { source: 'cluster0', destination: 'cluster1' }

async function check(tandem: Tandem, overrides: Record<string, unknown> = {}): Promise<Finding[]> {
  const answer = await tandem.post('check', { ...body, ...overrides })
  expect(answer).toMatchObject({ status: 200, body: { success: true } })
  return answer.body['findings'] as Finding[]
}

const summaryOf = (findings: Finding[]) => findings.map(({ severity, name, namespace }) => [severity, name, namespace])
const footprints = () => Promise.all([footprint(pair.sourceClient), footprint(pair.destinationClient)])

describe('check', () => {
  it('finds nothing between clean clusters, and a start is then accepted', async () => {
    await pair.sourceClient.db('app').collection('things').insertOne({})
    await using tandem = await pair.startInstance()
    const before = await footprints()
    expect(await check(tandem)).toEqual([])
    expect(await check(tandem, { reversible: true, enableUserWriteBlocking: true })).toEqual([])
    expect(await footprints()).toEqual(before)
    expect(await tandem.progress()).toMatchObject({ state: 'IDLE' })
    expect(await tandem.post('start', body)).toMatchObject({ status: 200 })
  })

  it('reports all findings at once and changes nothing, and start is refused with the first of them', async () => {
    const source = pair.sourceClient.db('app')
    await source.createCollection('weather', { timeseries: { timeField: 'at' } })
    await source.createCollection('rain', { timeseries: { timeField: 'at' } })
    await source.collection('things').createIndex({ at: 1 }, { expireAfterSeconds: 60 })
    await pair.destinationClient.db('old').collection('left over').insertOne({})
    await using tandem = await pair.startInstance()
    const wrong = { buildIndexes: 'never', reversible: true, sharding: { shardingEntries: [] } }
    const before = await footprints()
    const findings = await check(tandem, wrong)
    expect(await footprints()).toEqual(before)
    expect(summaryOf(findings)).toEqual([
      ['error', 'ReversibleNotSupported', undefined],
      ['error', 'ShardingNotAllowed', undefined],
      ['error', 'UnsupportedCollection', 'app.rain'],
      ['error', 'UnsupportedCollection', 'app.weather'],
      ['error', 'VerificationNotSupported', 'app.things'],
      ['error', 'DestinationNotEmpty', undefined],
    ])
    for (const { message, remedy } of findings)
      expect([message, remedy]).toEqual([expect.any(String), expect.any(String)])
    const { reversible: _, ...rest } = wrong
    const [first] = await check(tandem, rest)
    const refused = await tandem.post('start', { ...body, ...rest })
    expect(refused).toMatchObject({ status: 422, body: { error: first?.name } })
    expect(refused.body.errorDescription).toContain(first?.message)
  })

  it('refuses a body with an unknown field', async () => {
    await using tandem = await pair.startInstance()
    expect(await tandem.post('check', { ...body, nonsense: 1 })).toMatchObject({
      status: 400,
      body: { error: 'InvalidRequest', errorDescription: expect.stringContaining('nonsense') },
    })
  })

  it('reports that both are the same cluster, even under different addresses', async () => {
    const byName = `mongodb://${pair.source.hosts[0]?.replace('127.0.0.1', 'localhost')}/?directConnection=true`
    await using tandem = await startTandem({ cluster0: pair.source.uri, cluster1: byName })
    await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).not.toBeNull()
    expect(summaryOf(await check(tandem))).toEqual([['error', 'UnsupportedTopology', undefined]])
  })

  it('warns about a short oplog, and progress shows the same warning after the start', async () => {
    await fillOplog(pair.sourceClient)
    await using tandem = await pair.startInstance()
    const findings = await check(tandem)
    expect(findings.filter(({ name }) => name === 'ShortOplogWindow')).toMatchObject([
      {
        severity: 'warning',
        message: expect.stringMatching(/reaches back about 0\.\d hours/),
        remedy: expect.stringMatching(/oplog/),
      },
    ])
    expect(findings.filter(({ severity }) => severity === 'error')).toEqual([])
    await startSync(tandem, { enableUserWriteBlocking: 'destinationOnly' })
    const { warnings } = await tandem.waitFor((progress) => progress.estimatedOplogTimeRemaining !== undefined, {
      timeoutSeconds: 30,
      what: 'an estimate of the oplog time',
    })
    expect(warnings).toEqual([expect.stringMatching(/oplog of the source.*(minutes)/)])
  })
})
