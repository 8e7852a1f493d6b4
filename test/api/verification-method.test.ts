import { expect, it } from 'vitest'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

/** `verification.initialCompareMethod`: how the first verification compares documents. */

async function send(verification: object) {
  const { post, instance } = apiUnderTest()
  const { status, body } = await post('/api/v1/start', { ...minimalStart, verification })
  return { status, body, verification: instance.calls[0]?.configuration?.verification }
}

it('is binary by default, and the answer to such a start is that of mongosync', async () => {
  const expected = {
    status: 200,
    body: { success: true },
    verification: { enabled: true, initialCompareMethod: 'binary' },
  }
  for (const given of [{}, { initialCompareMethod: 'binary' }]) expect(await send(given)).toEqual(expected)
})

it('toHashedIndexKey is accepted', async () => {
  const byHashes = { enabled: true, initialCompareMethod: 'toHashedIndexKey' }
  expect(await send({ initialCompareMethod: 'toHashedIndexKey' })).toMatchObject({
    status: 200,
    verification: byHashes,
  })
})

it.each([
  [{ initialCompareMethod: 'md5' }, /^verification.initialCompareMethod: .*'binary' or 'toHashedIndexKey'/],
  [
    { enabled: false, initialCompareMethod: 'toHashedIndexKey' },
    /^verification.initialCompareMethod: .*set verification.enabled to true/,
  ],
])('%j is refused', async (given, description) => {
  const { status, body, verification } = await send(given)
  expect([status, body.error, verification]).toEqual([400, 'InvalidRequest', undefined])
  expect(body.errorDescription).toMatch(description)
})

it('progress names the method if it is not binary', async () => {
  const { get, instance } = apiUnderTest()
  const side = { phase: 'stream hashing', estimatedDocumentCount: 1, hashedDocumentCount: 1 }
  const sides = { ...side, lagTimeSeconds: 0, scannedCollectionCount: 1, totalCollectionCount: 1 }
  const verification = { source: sides, destination: sides }
  for (const shown of [verification, { ...verification, initialCompareMethod: 'toHashedIndexKey' as const }]) {
    instance.shown = { ...idleProgress, verification: shown }
    expect((await get('/api/v1/progress')).body.progress.verification).toEqual(shown)
  }
})
