import { beforeAll, describe, expect, test } from 'vitest'
import { buildIndexesModes } from '../../src/domain/build-indexes.ts'
import { apiUnderTest } from './recording-instance.ts'

// biome-ignore lint/suspicious/noExplicitAny: a document of JSON Schemas
let document: any
beforeAll(async () => {
  document = (await apiUnderTest().get('/openapi.json')).body
})

const commandsToAll = ['all/pause', 'all/resume', 'all/commit', 'all/abort', 'all/reverse', 'all/filter']
const postPaths = [
  'start',
  'check',
  'pause',
  'resume',
  'commit',
  'abort',
  'reverse',
  'repair',
  'resync',
  'filter',
  ...commandsToAll,
].map((command) => `/api/v1/${command}`)
const queries = ['progress', 'instances', 'collections', 'events', 'audit', 'verification/mismatches']
const getPaths = queries.map((query) => `/api/v1/${query}`)

describe('the document', () => {
  test('is an OpenAPI 3.1 object with the required parts', () => {
    expect(document.openapi).toMatch(/^3\.1\.\d+$/)
    expect(document.info).toMatchObject({ title: 'tandem', version: '1.2.3' })
    const ids: string[] = []
    for (const [path, item] of Object.entries<Record<string, Record<string, unknown>>>(document.paths)) {
      expect(path).toMatch(/^\//)
      for (const [method, operation] of Object.entries(item)) {
        expect(['get', 'post', 'patch']).toContain(method)
        ids.push(operation['operationId'] as string)
        for (const [status, response] of Object.entries(operation['responses'] as Record<string, unknown>)) {
          expect(status).toMatch(/^[2-5]\d\d$/)
          expect(response).toMatchObject({ description: expect.any(String) })
        }
      }
    }
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('contains only JSON Schemas without unresolved parts', () => {
    const text = JSON.stringify(document)
    expect(text).not.toMatch(/~standard|"\$ref"|"kind":"/)
    expect(text).toContain('"type":"object"')
  })

  test('lists every endpoint, all under /api/v1 but health', () => {
    expect(Object.keys(document.paths).sort()).toEqual([...postPaths, ...getPaths, '/api/v1/limits', '/healthz'].sort())
    for (const path of postPaths) expect(Object.keys(document.paths[path])).toEqual(['post'])
    for (const path of getPaths) expect(Object.keys(document.paths[path])).toEqual(['get'])
    expect(Object.keys(document.paths['/api/v1/limits'])).toEqual(['get', 'patch'])
  })

  test('describes success and every failure status', () => {
    for (const path of postPaths) {
      const { responses } = document.paths[path].post
      expect(Object.keys(responses).sort()).toEqual([
        '200',
        '400',
        '401',
        '403',
        '409',
        '413',
        '422',
        '429',
        '500',
        '503',
      ])
      expect(schemaOf(responses['200']).properties.success).toMatchObject({ const: true })
      const failure = schemaOf(responses['400'])
      expect(failure.required).toEqual(['success', 'error', 'errorDescription'])
      expect(failure.properties.error.enum).toContain('ReversibleNotSupported')
    }
    const statusesOf = (path: string): string[] => Object.keys(document.paths[path].get.responses)
    for (const path of getPaths) expect(statusesOf(path), path).toEqual(expect.arrayContaining(['401', '429', '500']))
    // This path needs no token.
    expect(statusesOf('/healthz')).toEqual(['200', '403', '500'])
  })
})

describe('the body of start', () => {
  const body = () => document.paths['/api/v1/start'].post.requestBody.content['application/json'].schema

  test('has every documented field with its type and default', () => {
    const { properties, required, additionalProperties } = body()
    expect(required).toEqual(['source', 'destination'])
    expect(additionalProperties).toBe(false)
    const table: Record<string, unknown> = {
      source: { type: 'string', enum: ['cluster0', 'cluster1'] },
      destination: { type: 'string', enum: ['cluster0', 'cluster1'] },
      buildIndexes: { type: 'string', enum: [...buildIndexesModes], default: 'beforeDataCopy' },
      enableUserWriteBlocking: {
        anyOf: [{ type: 'string', enum: ['sourceAndDestination', 'destinationOnly', 'none'] }, { type: 'boolean' }],
        default: 'destinationOnly',
      },
      includeNamespaces: { type: 'array' },
      excludeNamespaces: { type: 'array' },
      reversible: { type: 'boolean', default: false },
      sharding: { type: 'object', required: ['shardingEntries'] },
      verification: {
        type: 'object',
        properties: {
          enabled: { type: 'boolean', default: true },
          initialCompareMethod: { type: 'string', enum: ['binary', 'toHashedIndexKey'], default: 'binary' },
        },
      },
      existingData: { type: 'string', enum: ['refuse', 'converge'], default: 'refuse' },
      timeseries: { type: 'string', enum: ['refuse', 'skip'], default: 'refuse' },
      copyInNaturalOrder: { anyOf: [{ type: 'boolean' }, { type: 'array' }] },
      detectRandomId: { type: 'boolean', default: true },
      namespaceRemap: { type: 'array' },
      skipDiskSpaceCheck: { type: 'boolean', default: false },
    }
    expect(Object.keys(properties).sort()).toEqual(Object.keys(table).sort())
    for (const [name, expected] of Object.entries(table)) {
      expect(properties[name], name).toMatchObject(expected as object)
      expect(properties[name].description, name).toEqual(expect.any(String))
    }
  })

  test('has the fields of sharding and of a namespace filter', () => {
    const { sharding, includeNamespaces } = body().properties
    expect(sharding.properties.createSupportingIndexes).toMatchObject({ type: 'boolean', default: false })
    const entry = sharding.properties.shardingEntries.items
    expect(entry.required).toEqual(['database', 'collection', 'shardCollection'])
    expect(entry.properties.shardCollection.properties.key.type).toBe('array')
    expect(Object.keys(includeNamespaces.items.properties)).toEqual([
      'database',
      'databaseRegex',
      'collections',
      'collectionsRegex',
    ])
    expect(Object.keys(includeNamespaces.items.properties.collectionsRegex.properties)).toEqual(['pattern', 'options'])
  })
})

test('the answer of progress has every documented field, with integer types for integers', () => {
  const { properties, required } = schemaOf(document.paths['/api/v1/progress'].get.responses['200'])
  expect(required).toEqual(['progress', 'success'])
  const { progress } = properties
  expect(progress.required).toEqual([
    'state',
    'canCommit',
    'canWrite',
    'info',
    'lagTimeSeconds',
    'totalEventsApplied',
    'collectionCopy',
    'directionMapping',
    'mongosyncID',
    'coordinatorID',
    'verification',
  ])
  const notNull = (schema: { anyOf: object[] }) =>
    schema.anyOf.find((part) => !('type' in part && part.type === 'null'))
  for (const name of ['lagTimeSeconds', 'totalEventsApplied']) {
    expect(notNull(progress.properties[name]), name).toMatchObject({ type: 'integer' })
  }
  expect(notNull(progress.properties.collectionCopy)).toMatchObject({
    properties: { estimatedTotalBytes: { type: 'integer' }, estimatedCopiedBytes: { type: 'integer' } },
  })
  expect(notNull(progress.properties.verification)).toMatchObject({
    required: ['source', 'destination'],
    properties: { source: { properties: { hashedDocumentCount: { type: 'integer' }, phase: { type: 'string' } } } },
  })
})

test('the answer of instances has each instance with its complete progress, and the totals', () => {
  const { properties, required } = schemaOf(document.paths['/api/v1/instances'].get.responses['200'])
  expect(required).toEqual(['success', 'instances', 'totals'])
  const row = properties.instances.items
  expect(row.required).toEqual(['mongosyncID', 'coordinator', 'status', 'lastSeenSeconds', 'partitions', 'progress'])
  expect(row.properties.status.enum).toEqual(['alive', 'lost'])
  expect(row.properties.progress.required).toContain('coordinatorID')
  expect(properties.totals.properties.percent).toMatchObject({ type: 'number', minimum: 0, maximum: 100 })
})

// biome-ignore lint/suspicious/noExplicitAny: a JSON Schema
function schemaOf(response: any): any {
  return response.content['application/json'].schema
}
