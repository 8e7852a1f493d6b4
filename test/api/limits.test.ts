import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { limitsAnswerSchema } from '../../src/api/limits-schema.ts'
import { progressSchema } from '../../src/api/progress-schema.ts'
import type { LimitsReport } from '../../src/domain/limits.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from './recording-instance.ts'

const path = '/api/v1/limits'
const usual = { bytesPerSecond: null, readConcurrency: 4, writeConcurrency: 4 }

function limitsUnderTest() {
  const { api, get, instance } = apiUnderTest()
  const patch = async (body: unknown) => {
    const response = await api.request(path, { method: 'PATCH', body: JSON.stringify(body) })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }
  return { api, get, patch, instance }
}

describe('limits', () => {
  test('GET answers the limits in force', async () => {
    const { get } = limitsUnderTest()
    const { status, body } = await get(path)
    expect(status).toBe(200)
    expect(body).toEqual({ limits: usual, success: true })
    expect(v.safeParse(limitsAnswerSchema, body).issues).toBeUndefined()
  })

  test('PATCH changes only the fields that it names, answers the new limits, and removes a limit that is null', async () => {
    const { patch, get } = limitsUnderTest()
    expect(await patch({ bytesPerSecond: 2_000_000 })).toEqual({
      status: 200,
      body: { limits: { ...usual, bytesPerSecond: 2_000_000 }, success: true },
    })
    await patch({ readConcurrency: 1, writeConcurrency: 16 })
    expect((await get(path)).body.limits).toEqual({
      bytesPerSecond: 2_000_000,
      readConcurrency: 1,
      writeConcurrency: 16,
    })
    await patch({ bytesPerSecond: null, writeConcurrency: null })
    expect((await get(path)).body.limits).toEqual({ ...usual, readConcurrency: 1 })
    expect((await patch({})).body['limits']).toEqual({ ...usual, readConcurrency: 1 })
  })

  test.each([
    [{ bytesPerSecond: 1_048_575 }, 'bytesPerSecond: must be at least 1048576'],
    [{ bytesPerSecond: 1e300 }, 'bytesPerSecond: must be at most 9007199254740991'],
    [{ bytesPerSecond: 2_000_000.5 }, 'bytesPerSecond: must be a whole number'],
    [{ bytesPerSecond: '2000000' }, 'bytesPerSecond: must be a number'],
    [{ readConcurrency: 0 }, 'readConcurrency: must be at least 1'],
    [{ readConcurrency: 17 }, 'readConcurrency: must be at most 16'],
    [{ writeConcurrency: -1 }, 'writeConcurrency: must be at least 1'],
    [{ writeConcurrency: true }, 'writeConcurrency: must be a number'],
    [{ loadLevel: 1 }, 'loadLevel: unknown field'],
  ])('%j is refused with the name of the field and the remedy, and changes nothing', async (body, sentence) => {
    const { patch, get, instance } = limitsUnderTest()
    const reply = await patch(body)
    expect(reply).toMatchObject({ status: 400, body: { success: false, error: 'InvalidRequest' } })
    expect(reply.body['errorDescription']).toContain(sentence)
    expect(instance.calls).toEqual([])
    expect((await get(path)).body.limits).toEqual(usual)
  })

  test('a request with another method is answered 405, and its header Allow names the allowed methods', async () => {
    const response = await limitsUnderTest().api.request(path, { method: 'POST', body: '{}' })
    expect(response.status).toBe(405)
    expect(response.headers.get('Allow')).toBe('GET, HEAD, PATCH')
  })

  test('progress shows limits and the reason of a back-off', async () => {
    const { get, instance } = limitsUnderTest()
    const limits: LimitsReport = {
      ...usual,
      backedOff: { reason: 'the cache is full', since: '2026-11-21T00:00:00.000Z', writeConcurrency: 1 },
    }
    instance.shown = { ...idleProgress, limits }
    const { body } = await get('/api/v1/progress')
    expect(v.safeParse(progressSchema, body.progress).issues).toBeUndefined()
    expect(body.progress.limits).toEqual(limits)
    instance.shown = idleProgress
    expect((await get('/api/v1/progress')).body.progress).not.toHaveProperty('limits')
  })
})
