import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { instancesAnswerSchema } from '../../src/api/instances-schema.ts'
import type { InstanceRow } from '../../src/domain/instances.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from './recording-instance.ts'

const coordinator: InstanceRow = {
  mongosyncID: 'shardA',
  coordinator: true,
  status: 'alive',
  lastSeenSeconds: 0,
  partitions: [0, 2],
  progress: {
    ...idleProgress,
    state: 'RUNNING',
    lagTimeSeconds: 3,
    totalEventsApplied: 40,
    collectionCopy: { estimatedTotalBytes: 3_000, estimatedCopiedBytes: 1_000 },
    mongosyncID: 'shardA',
    coordinatorID: 'shardA',
  },
}
const lost: InstanceRow = {
  ...coordinator,
  mongosyncID: 'shardB',
  coordinator: false,
  status: 'lost',
  lastSeenSeconds: 11.8,
  partitions: [],
  progress: {
    ...coordinator.progress,
    lagTimeSeconds: 90,
    collectionCopy: { estimatedTotalBytes: 3_000, estimatedCopiedBytes: 0 },
  },
}

const lagOf = (seconds: number) => ({ overallLagSeconds: seconds, crudLagSeconds: seconds, ddlLagSeconds: seconds })

async function shown(rows: InstanceRow[]) {
  const { get, instance } = apiUnderTest()
  instance.rows = rows
  const reply = await get('/api/v1/instances')
  expect(v.safeParse(instancesAnswerSchema, reply.body).issues).toBeUndefined()
  return reply
}

describe('GET /api/v1/instances', () => {
  test('answers every instance with its progress, and the totals', async () => {
    const reply = await shown([coordinator, lost])
    expect(reply.status).toBe(200)
    expect(reply.body).toEqual({
      success: true,
      instances: [
        { ...coordinator, progress: { ...coordinator.progress, lag: lagOf(3) } },
        { ...lost, lastSeenSeconds: 11, progress: { ...lost.progress, lag: lagOf(90) } },
      ],
      totals: {
        estimatedCopiedBytes: 1_000,
        estimatedTotalBytes: 3_000,
        percent: 33.33,
        lagTimeSeconds: 3,
        totalEventsApplied: 80,
      },
    })
  })

  test('also answers for an instance that is IDLE', async () => {
    const { body } = await shown([{ ...coordinator, coordinator: false, partitions: [], progress: idleProgress }])
    expect(body.instances[0].progress).toEqual(idleProgress)
    expect(body.totals).toMatchObject({ percent: 0, lagTimeSeconds: null })
  })

  test('exposes no credentials and no field that is not public', async () => {
    const uri = 'mongodb://root:hunter2@db.test/'
    const failure = { error: 'InternalError' as const, errorDescription: `connecting to ${uri} failed` }
    const leaky = { ...coordinator, incarnation: uri, progress: { ...coordinator.progress, failure } }
    expect(JSON.stringify((await shown([leaky])).body)).not.toMatch(/root|hunter2|incarnation/)
  })

  test('accepts only GET, and answers an internal error in the failure shape', async () => {
    const { get, post, instance } = apiUnderTest()
    const wrong = await post('/api/v1/instances')
    expect(wrong.status).toBe(405)
    expect(wrong.headers.get('allow')).toBe('GET, HEAD')
    instance.instances = () => Promise.reject(new Error('hunter2'))
    const reply = await get('/api/v1/instances')
    expect(reply).toMatchObject({ status: 500, body: { success: false, error: 'InternalError' } })
    expect(JSON.stringify(reply.body)).not.toContain('hunter2')
  })
})
