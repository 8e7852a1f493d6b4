import { expect, test } from 'vitest'
import { apiUnderTest } from './recording-instance.ts'

const path = '/api/v1/resync'
const things = { database: 'app', collection: 'things.of.mine' }

test('the given collections reach the instance, and the answer is success', async () => {
  const { post, instance } = apiUnderTest()
  const reply = await post(path, { namespaces: [things, { database: 'other', collection: 'x' }] })
  expect([reply.status, reply.body]).toEqual([200, { success: true }])
  expect(instance.resynced).toEqual([things, { database: 'other', collection: 'x' }])
})

test.each([
  [{}, /^namespaces: is required/],
  [{ namespaces: [] }, /^namespaces: must not be empty/],
  [{ namespaces: 'app.things' }, /^namespaces: must be an array/],
  [{ namespaces: [things, { database: 'app' }] }, /^namespaces\[1\]\.collection: is required/],
  [{ namespaces: [{ database: '', collection: 'x' }] }, /^namespaces\[0\]\.database: must not be empty/],
  [{ namespaces: [{ ...things, regex: 1 }] }, /^namespaces\[0\]\.regex: unknown field/],
  [{ namespaces: [things], all: true }, /^all: unknown field/],
])('a wrong body is refused with the name of the field: %j', async (body, description) => {
  const { post, instance } = apiUnderTest()
  const reply = await post(path, body)
  expect([reply.status, reply.body.error]).toEqual([400, 'InvalidRequest'])
  expect(reply.body.errorDescription).toMatch(description)
  expect(instance.calls).toEqual([])
})
