import fc from 'fast-check'
import { expect, test } from 'vitest'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

const commands = ['start', 'pause', 'resume', 'commit', 'reverse']

/** Generates values that resemble those of a valid start, so that requests also reach the deeper checks. */
const nearValue = fc.oneof(
  fc.jsonValue(),
  fc.constantFrom<unknown>(true, 'never', 'none', 'cluster0', [], {}, [{ database: 'a' }], { enabled: false }),
  fc.record(
    { shardingEntries: fc.array(fc.jsonValue()), createSupportingIndexes: fc.jsonValue() },
    { requiredKeys: [] },
  ),
  fc.record({
    shardingEntries: fc.array(
      fc.record(
        { database: fc.jsonValue(), collection: fc.string(), shardCollection: fc.record({ key: fc.jsonValue() }) },
        { requiredKeys: [] },
      ),
    ),
  }),
  fc.array(
    fc.record(
      {
        database: fc.jsonValue(),
        collections: fc.jsonValue(),
        collectionsRegex: fc.jsonValue(),
        databaseRegex: fc.jsonValue(),
      },
      { requiredKeys: [] },
    ),
  ),
)
const field = fc.constantFrom(
  'source',
  'destination',
  'buildIndexes',
  'enableUserWriteBlocking',
  'includeNamespaces',
  'excludeNamespaces',
  'reversible',
  'sharding',
  'verification',
  'existingData',
  'timeseries',
  'copyInNaturalOrder',
  'detectRandomId',
  'namespaceRemap',
  '__proto__',
  'constructor',
  'toString',
)
const nearStart = fc
  .array(fc.tuple(fc.oneof({ weight: 5, arbitrary: field }, { weight: 1, arbitrary: fc.string() }), nearValue))
  .map((pairs) =>
    // The body is built as text, because an object literal cannot have __proto__ as an own field.
    [...Object.entries(minimalStart), ...pairs]
      .map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`)
      .join(','),
  )
  .map((members) => `{${members}}`)

const body = fc.oneof(
  fc.json(),
  fc.string().map((text) => new TextEncoder().encode(text)),
  fc.uint8Array({ maxLength: 200 }),
  nearStart,
)

test('no body makes the API fail: each body is accepted, or refused in the documented shape', async () => {
  const { api, internalErrors } = apiUnderTest()
  const statuses = new Set<number>()
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...commands), body, async (command, sent) => {
      const response = await api.request(`/api/v1/${command}`, { method: 'POST', body: sent })
      const reply = (await response.json()) as { errorDescription: string }
      statuses.add(response.status)
      if (response.status === 200) expect(reply).toEqual({ success: true })
      else {
        expect([400, 422]).toContain(response.status)
        expect(reply).toEqual({
          success: false,
          error: expect.any(String),
          errorDescription: expect.any(String),
          lost: 'nothing',
          docs: expect.stringMatching(/^docs\/troubleshooting\.md#[a-z]+$/),
        })
        expect(reply.errorDescription.length).toBeLessThan(10_000)
      }
    }),
    { numRuns: 1000 },
  )
  expect(internalErrors).toEqual([])
  expect(statuses).toContain(200)
  expect(statuses).toContain(400)
})

test('an accepted start calls the instance once with a complete and consistent configuration', async () => {
  const { api, instance } = apiUnderTest()
  await fc.assert(
    fc.asyncProperty(nearStart, async (sent) => {
      instance.calls = []
      const response = await api.request('/api/v1/start', { method: 'POST', body: sent })
      expect(instance.calls).toHaveLength(response.status === 200 ? 1 : 0)
      const configuration = instance.calls[0]?.configuration
      if (configuration === undefined) return
      expect(configuration.source).not.toBe(configuration.destination)
      expect(configuration.buildIndexes === 'never' && configuration.reversible).toBe(false)
      expect(Object.keys(configuration)).toHaveLength(15)
    }),
    { numRuns: 500 },
  )
})

test('deep nesting and many fields are refused without a crash', async () => {
  const { post } = apiUnderTest()
  const deep = `{"a":${'['.repeat(200_000)}${']'.repeat(200_000)}}`
  const wide = `{${Array.from({ length: 50_000 }, (_, index) => `"f${index}":1`).join(',')}}`
  const deepSource = `{"source":${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}}`
  for (const sent of [deep, wide, deepSource]) {
    const reply = await post('/api/v1/start', sent)
    expect(reply.status).toBe(400)
    expect(reply.body.errorDescription.length).toBeLessThan(10_000)
  }
})
