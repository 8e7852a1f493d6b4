import { expect, test } from 'vitest'
import { apiUnderTest } from './recording-instance.ts'

const path = '/api/v1/filter'
const shop = { database: 'shop', collections: ['orders'] }
const zoo = { databaseRegex: { pattern: '^zoo', options: 'i' } }

test('the filter reaches the instance in the form that start passes on, and the answer contains only success', async () => {
  const { post, instance } = apiUnderTest()
  const reply = await post(path, { includeNamespaces: [shop, zoo], dropExcluded: true })
  expect([reply.status, reply.body]).toEqual([200, { success: true }])
  expect(instance.filtered).toEqual({ includeNamespaces: [shop, zoo], excludeNamespaces: null, dropExcluded: true })
})

test('an absent field means that there is no filter of its kind, and dropExcluded is false by default', async () => {
  const { post, instance } = apiUnderTest()
  await post(path, { excludeNamespaces: [] })
  expect(instance.filtered).toEqual({ includeNamespaces: null, excludeNamespaces: null, dropExcluded: false })
})

test.each([
  [{ includeNamespaces: [] }, /^includeNamespaces: must not be empty/],
  [{ includeNamespaces: 'shop' }, /^includeNamespaces: must be an array/],
  [{ includeNamespaces: [{ collections: ['a'] }] }, /^includeNamespaces\[0\]\.database: is required/],
  [{ excludeNamespaces: [shop, { database: 'admin' }] }, /^excludeNamespaces\[1\]\.database: admin is never synced/],
  [
    { excludeNamespaces: [{ ...shop, collectionsRegex: { pattern: 'a' } }] },
    /^excludeNamespaces\[0\]\.collectionsRegex: give at most one/,
  ],
  [{ dropExcluded: 'yes' }, /^dropExcluded: must be/],
  [{ namespaces: [shop] }, /^namespaces: unknown field/],
])('a wrong body is refused with the name of the field: %j', async (body, description) => {
  const { post, instance } = apiUnderTest()
  const reply = await post(path, body)
  expect([reply.status, reply.body.error]).toEqual([400, 'InvalidRequest'])
  expect(reply.body.errorDescription).toMatch(description)
  expect(instance.calls).toEqual([])
})
