import { describe, expect, test } from 'vitest'
import type { Mismatch } from '../../src/domain/mismatch.ts'
import { apiUnderTest } from './recording-instance.ts'

/** Tests how many differences, and how many entries of the audit trail, an answer lists. */

const namespace = 'app.things'
const difference = (id: number): Mismatch => ({ namespace, kind: 'missing', id })

test('mismatches lists at most the requested number of differences, and by default all that are stored', async () => {
  const { get, instance } = apiUnderTest()
  instance.found = { mismatches: Array.from({ length: 1_000 }, (_, at) => difference(at)), total: 4_321 }
  const whole = await get('/api/v1/verification/mismatches')
  expect(whole.body).toMatchObject({ success: true, total: 4_321, truncated: true })
  expect(whole.body.mismatches).toHaveLength(1_000)
  const { body } = await get('/api/v1/verification/mismatches?limit=2')
  expect(body).toEqual({ success: true, mismatches: [difference(0), difference(1)], total: 4_321, truncated: true })
  instance.found = { mismatches: [difference(0), difference(1)], total: 2 }
  expect((await get('/api/v1/verification/mismatches?limit=1')).body).toMatchObject({ total: 2, truncated: true })
  expect((await get('/api/v1/verification/mismatches?limit=2')).body).toMatchObject({ total: 2, truncated: false })
})

test('audit lists the requested number of newest entries, and by default all entries', async () => {
  const { get, post } = apiUnderTest()
  for (const command of ['pause', 'resume', 'commit']) await post(`/api/v1/${command}`)
  const commands = async (query: string): Promise<string[]> =>
    (await get(`/api/v1/audit${query}`)).body.entries.map(({ command }: { command: string }) => command)
  const all = await commands('')
  expect(all).toHaveLength(3)
  expect(await commands('?limit=2')).toEqual(all.slice(0, 2))
  expect(await commands('?limit=1000')).toEqual(all)
})

describe.each(['verification/mismatches', 'audit'])('%s', (path) => {
  test.each([
    ['limit=0', /^limit: must be at least 1$/],
    ['limit=1001', /^limit: must be at most 1000$/],
    ['limit=', /^limit: must be a whole number of at most 9 digits$/],
    ['limit=-1', /^limit: must be a whole number of at most 9 digits$/],
    ['limit=1e2', /^limit: must be a whole number of at most 9 digits$/],
    ['after=3', /^after: unknown field; the allowed fields are limit$/],
  ])('%s is refused with the name of the parameter', async (query, expected) => {
    const { status, body } = await apiUnderTest().get(`/api/v1/${path}?${query}`)
    expect(status).toBe(400)
    expect(body).toMatchObject({
      success: false,
      error: 'InvalidRequest',
      errorDescription: expect.stringMatching(expected),
    })
  })
})
