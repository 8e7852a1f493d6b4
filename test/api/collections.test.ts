import { expect, test } from 'vitest'
import type { CollectionRow } from '../../src/domain/collection-figures.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import { apiUnderTest } from './recording-instance.ts'

const row = (at: number): CollectionRow => ({
  namespace: `app.c${at}`,
  copy: {
    ended: false,
    converging: false,
    estimatedTotalBytes: 100.5,
    estimatedCopiedBytes: 7,
    estimatedDocumentCount: 10,
    copiedDocumentCount: 1,
  },
  indexes: { total: 3, built: 2, heldBack: 1, missing: 1 },
  verification: at === 0 ? null : { phase: 'not started', hashedDocumentCount: 0, hashedRanges: 0, totalRanges: 2 },
  mismatches: 0,
})

test('GET /api/v1/collections answers one page of collections and their total number', async () => {
  const { get, instance } = apiUnderTest()
  instance.collectionRows = Array.from({ length: 120 }, (_, at) => row(at))
  const names = async (query: string): Promise<string[]> =>
    (await get(`/api/v1/collections${query}`)).body.collections.map(({ namespace }: CollectionRow) => namespace)
  expect(await names('')).toHaveLength(100)
  expect(await names('?limit=2&after=118')).toEqual(['app.c118', 'app.c119'])
  const { status, body } = await get('/api/v1/collections?limit=2')
  expect(status).toBe(200)
  // According to the documentation, these figures are whole numbers.
  const copy = { ...row(0).copy, estimatedTotalBytes: 100 }
  expect(body).toEqual({
    success: true,
    collections: [
      { ...row(0), copy },
      { ...row(1), copy },
    ],
    total: 120,
  })
})

test.each([
  ['limit=0', /^limit: must be at least 1$/],
  ['limit=201', /^limit: must be at most 200$/],
  ['limit=', /^limit: must be a whole number of at most 9 digits$/],
  ['after=-1', /^after: must be a whole number of at most 9 digits$/],
  ['after=1e3', /^after: must be a whole number of at most 9 digits$/],
  ['offset=3', /^offset: unknown field; the allowed fields are limit, after$/],
])('a page of %s is refused with the name of the field', async (query, expected) => {
  const { status, body } = await apiUnderTest().get(`/api/v1/collections?${query}`)
  expect(status).toBe(400)
  expect(body).toMatchObject({
    success: false,
    error: 'InvalidRequest',
    errorDescription: expect.stringMatching(expected),
  })
})

test('collections accept only GET, and answer ClusterUnreachable while the destination does not answer', async () => {
  const { get, post, instance } = apiUnderTest()
  expect((await post('/api/v1/collections')).headers.get('allow')).toBe('GET, HEAD')
  instance.collections = () => Promise.reject(new RefusedError('ClusterUnreachable', 'a cluster does not answer'))
  expect(await get('/api/v1/collections')).toMatchObject({ status: 503, body: { error: 'ClusterUnreachable' } })
})
