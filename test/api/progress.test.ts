import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { progressAnswerSchema } from '../../src/api/progress-schema.ts'
import { addCircumstances } from '../../src/domain/circumstances.ts'
import { FatalError, toFailure } from '../../src/domain/errors.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from './recording-instance.ts'

const side = {
  estimatedDocumentCount: 90,
  hashedDocumentCount: 89,
  lagTimeSeconds: 1,
  phase: 'stream hashing',
  scannedCollectionCount: 3,
  totalCollectionCount: 4,
}

const running: Progress = {
  state: 'RUNNING',
  canCommit: true,
  canWrite: false,
  info: 'change event application',
  lagTimeSeconds: 3,
  totalEventsApplied: 1840,
  collectionCopy: { estimatedTotalBytes: 52_110, estimatedCopiedBytes: 52_110 },
  directionMapping: { Source: 'cluster0: db-a.test:27017', Destination: 'cluster1: db-b.test:27018' },
  mongosyncID: 'one',
  coordinatorID: 'two',
  verification: { source: side, destination: { ...side, lagTimeSeconds: 2 } },
}

/** The lag of `running` in the form of mongosync 1.21. */
const lag = { overallLagSeconds: 3, crudLagSeconds: 3, ddlLagSeconds: 3 }

async function shown(progress: Progress) {
  const { get, instance } = apiUnderTest()
  instance.shown = progress
  const reply = await get('/api/v1/progress')
  expect(v.safeParse(progressAnswerSchema, reply.body).issues).toBeUndefined()
  return reply
}

describe('GET /api/v1/progress', () => {
  test('answers the progress object and success', async () => {
    const reply = await shown(running)
    expect(reply.status).toBe(200)
    expect(reply.body).toEqual({ progress: { ...running, lag }, success: true })
    expect(reply.headers.get('content-type')).toMatch(/^application\/json/)
  })

  test('has every field in IDLE; all fields except state and canCommit are null', async () => {
    const { progress } = (await shown(idleProgress)).body
    expect(Object.keys(progress).sort()).toEqual(Object.keys(running).sort())
    const { state, canCommit, ...rest } = progress
    expect({ state, canCommit }).toEqual({ state: 'IDLE', canCommit: false })
    expect(Object.values(rest).every((value) => value === null)).toBe(true)
  })

  test('shows a null lag in PAUSED and a null coordinatorID at startup', async () => {
    const { progress } = (await shown({ ...running, state: 'PAUSED', lagTimeSeconds: null, coordinatorID: null })).body
    expect(progress).toMatchObject({ state: 'PAUSED', lagTimeSeconds: null, coordinatorID: null, mongosyncID: 'one' })
    expect(progress).not.toHaveProperty('lag')
  })

  test('shows no verification when the verifier is disabled', async () => {
    expect((await shown({ ...running, verification: null })).body.progress.verification).toBeNull()
  })

  test('renders numbers as integers', async () => {
    const fractions = { ...side, hashedDocumentCount: 1.5, lagTimeSeconds: 0.2, estimatedDocumentCount: Number.NaN }
    const { progress } = (
      await shown({
        ...running,
        lagTimeSeconds: 3.9,
        totalEventsApplied: -0.5,
        collectionCopy: { estimatedTotalBytes: 2 ** 52 + 0.5, estimatedCopiedBytes: 10.7 },
        verification: { source: fractions, destination: side },
        estimatedSecondsToCatchUp: 7.5,
        convergingCollections: 2.5,
        indexBuilding: { indexesBuilt: 1.1, totalIndexesToBuild: 2.9, collectionsFinished: 0.5, collectionsTotal: 1.5 },
        source: { pingLatencyMs: 2.5 },
        destination: { pingLatencyMs: -1 },
      })
    ).body
    expect(progress).toMatchObject({
      lagTimeSeconds: 3,
      lag,
      totalEventsApplied: 0,
      collectionCopy: { estimatedTotalBytes: 2 ** 52, estimatedCopiedBytes: 10 },
      verification: { source: { hashedDocumentCount: 1, lagTimeSeconds: 0, estimatedDocumentCount: 0 } },
      estimatedSecondsToCatchUp: 7,
      estimatedSecondsToCEACatchup: 7,
      convergingCollections: 2,
      indexBuilding: { indexesBuilt: 1, totalIndexesToBuild: 2, collectionsFinished: 0, collectionsTotal: 1 },
      source: { pingLatencyMs: 2 },
      destination: { pingLatencyMs: -1 },
    })
  })

  test('shows the additional fields when they are present', async () => {
    const additions = {
      failure: { error: 'DuplicateKey' as const, errorDescription: 'zoo.animals: remove one of the two' },
      warnings: ['one', 'two'],
      estimatedSecondsToCatchUp: 12,
      estimatedOplogTimeRemaining: '12 hours',
      convergingCollections: 3,
      indexBuilding: { indexesBuilt: 1, totalIndexesToBuild: 2, collectionsFinished: 0, collectionsTotal: 1 },
      source: { pingLatencyMs: 1 },
      destination: { pingLatencyMs: 2 },
      retrying: { what: 'write to cluster1', since: '2026-01-01T00:00:00.000Z' },
    }
    const reply = await shown({ ...running, state: 'FAILED', ...additions })
    expect(reply.status).toBe(200)
    const failure = { ...additions.failure, lost: 'nothing', docs: 'docs/troubleshooting.md#duplicatekey' }
    const rendered = { ...running, lag, state: 'FAILED', ...additions, failure, estimatedSecondsToCEACatchup: 12 }
    expect(reply.body).toEqual({ progress: rendered, success: true })
  })

  test('names the cluster and the last error of a failure', async () => {
    const cause = new Error('connect ECONNREFUSED mongodb://root:hunter2@db.test:1')
    addCircumstances(cause, { cluster: 'cluster1' })
    const failure = toFailure(new FatalError('ClusterUnreachable', 'no success for 30 minutes', { cause }))
    expect((await shown({ ...running, state: 'FAILED', failure })).body.progress.failure).toEqual({
      error: 'ClusterUnreachable',
      errorDescription: 'no success for 30 minutes',
      cluster: 'cluster1',
      lastError: 'connect ECONNREFUSED mongodb://***@db.test:1',
      lost: 'nothing',
      docs: 'docs/troubleshooting.md#clusterunreachable',
    })
  })

  test('exposes no credentials and no field that is not public', async () => {
    const uri = 'mongodb://root:hunter2@db.test/'
    const leaky = {
      ...running,
      uri,
      directionMapping: { ...running.directionMapping, Source: `cluster0: ${uri}`, Destination: 'x', uri },
      failure: { error: 'InternalError', errorDescription: `connecting to ${uri} failed`, stack: uri },
      warnings: [`slow: ${uri}`],
      retrying: { what: uri, since: 'now' },
    } as unknown as Progress
    const text = JSON.stringify((await shown(leaky)).body)
    expect(text).not.toMatch(/root|hunter2|"uri"|stack/)
  })

  test('reads the progress of the instance for each request', async () => {
    const { get, instance } = apiUnderTest()
    expect((await get('/api/v1/progress')).body.progress.state).toBe('IDLE')
    instance.shown = running
    expect((await get('/api/v1/progress')).body.progress.state).toBe('RUNNING')
    expect((await get('/api/v1/progress')).headers.get('cache-control')).toBe('no-store')
  })

  test('answers in the failure shape when progress is not available', async () => {
    const { get, instance, internalErrors } = apiUnderTest()
    instance.progress = () => {
      throw new Error('hunter2')
    }
    const reply = await get('/api/v1/progress')
    expect(reply.status).toBe(500)
    expect(reply.body).toMatchObject({ success: false, error: 'InternalError', errorDescription: expect.any(String) })
    expect(JSON.stringify(reply.body)).not.toContain('hunter2')
    expect(internalErrors).toHaveLength(1)
  })

  test('needs no credential', async () => {
    expect((await shown(running)).status).toBe(200)
  })
})

test('GET /healthz answers success and the version', async () => {
  const { get } = apiUnderTest()
  expect((await get('/healthz')).body).toEqual({ success: true, version: '1.2.3' })
})
