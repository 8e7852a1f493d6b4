import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseChangeEvent } from '../../src/domain/change-event.ts'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { type RawFields, typedDocument } from '../../src/domain/raw-bson.ts'
import { rawDocument } from '../support/bson-values.ts'
import { anyFields, anyValue, documentOf, int32, lengthPrefixed, typed } from './bson-arbitraries.ts'

const string = (text: string) => typed(0x02, lengthPrefixed(Buffer.from(text)))
const timestamp = (seconds: number, ordinal: number) => {
  const payload = Buffer.alloc(8)
  payload.writeUInt32LE(ordinal, 0)
  payload.writeUInt32LE(seconds, 4)
  return typed(0x11, payload)
}
const uuid = Buffer.from('00ff10807f0a4bd08cf1fedcba987654', 'hex')
const typedUuid = typed(0x05, int32(16), Buffer.from([4]), uuid)
const namespaceOf = (...fields: [string, string][]) =>
  typedDocument(documentOf(fields.map(([name, text]) => ({ name, value: string(text) }))))

const token = { name: '_id', value: typedDocument(rawDocument([['_data', `82${'0'.repeat(16)}`]])) }

const kinds = {
  insert: 'insert',
  replace: 'replace',
  update: 'update',
  delete: 'delete',
  create: 'definition',
  drop: 'definition',
  dropDatabase: 'definition',
  rename: 'definition',
  createIndexes: 'definition',
  dropIndexes: 'definition',
  modify: 'definition',
  invalidate: 'silent',
  startIndexBuild: 'silent',
  abortIndexBuild: 'silent',
  endOfTransaction: 'silent',
  migrateChunkToNewShard: 'silent',
  migrateLastChunkFromShard: 'silent',
  reshardBegin: 'silent',
  reshardBlockingWrites: 'silent',
  reshardDoneCatchUp: 'silent',
  shardCollection: 'definition',
  refineCollectionShardKey: 'definition',
  reshardCollection: 'definition',
  // The server has commands with these names, but no events.
  moveCollection: 'unknown',
  unshardCollection: 'unknown',
  somethingOfALaterVersion: 'unknown',
  constructor: 'unknown',
} as const

describe('a change event', () => {
  it.each(Object.entries(kinds))('%s is of kind %s', (operationType, kind) => {
    const event = parseChangeEvent(documentOf([{ name: 'operationType', value: string(operationType) }]))
    expect(event).toMatchObject({ operationType, kind })
  })

  it.each([
    [['_id'], false],
    [['k', '_id'], true],
    [['_id', 'k'], true],
  ])('with the document key %j is keyed: %s', (names, keyed) => {
    const value = typedDocument(documentOf(names.map((name) => ({ name, value: string(name) }))))
    expect(parseChangeEvent(documentOf([{ name: 'documentKey', value }])).keyed).toBe(keyed)
  })

  it('property: is parsed into time, namespace, document key and document, whatever the order of its fields and whatever other fields it has', () => {
    const halves = fc.integer({ min: 0, max: 0xffff_ffff })
    const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 10 }).filter((name) => !name.includes('\0'))
    // The parser distinguishes names by their length. The stream's $project removes all other fields with a name of the same
    // length.
    const known = ['operationType', 'clusterTime', 'collectionUUID', 'ns', 'to', 'documentKey', 'fullDocument']
    const lengths = new Set(known.map((name) => name.length))
    const others = anyFields.map((fields) => fields.filter(({ name }) => !lengths.has(Buffer.byteLength(name))))
    const shardKey = anyFields.map((fields) => fields.filter(({ name }) => name !== '_id'))
    const fields = fc.record({
      seconds: halves,
      ordinal: halves,
      database: text,
      collection: text,
      id: anyValue,
      shardKey,
      document: anyFields.map(documentOf),
      others,
      order: fc.infiniteStream(fc.nat()),
    })
    fc.assert(
      fc.property(fields, ({ seconds, ordinal, database, collection, id, shardKey, document, others, order }) => {
        const documentKey = documentOf([...shardKey, { name: '_id', value: id }])
        const elements: RawFields = [
          token,
          { name: 'operationType', value: string('replace') },
          { name: 'clusterTime', value: timestamp(seconds, ordinal) },
          { name: 'collectionUUID', value: typedUuid },
          { name: 'ns', value: namespaceOf(['db', database], ['coll', collection]) },
          { name: 'documentKey', value: typedDocument(documentKey) },
          { name: 'fullDocument', value: typedDocument(document) },
          ...others,
        ]
        const shuffled = elements
          .map((element) => ({ element, at: order.next().value }))
          .sort((one, other) => one.at - other.at)
        const bytes = documentOf(shuffled.map(({ element }) => element))
        const event = parseChangeEvent(bytes)
        expect(event).toMatchObject({ kind: 'replace', time: clusterTime(seconds, ordinal), database, collection })
        expect(Buffer.from(event.uuid, 'latin1')).toEqual(uuid)
        expect(event.document).toEqual(document)
        expect(event.idElement).toEqual(Buffer.concat([id.subarray(0, 1), Buffer.from('_id\0'), id.subarray(1)]))
        const isCarried = shardKey.length > 0 && documentKey.length <= 1_024
        expect(event.documentKey).toEqual(isCarried ? documentKey : null)
        expect(event.idType).toBe(id[0])
        expect(bytes.subarray(event.idStart, event.idEnd)).toEqual(id.subarray(1))
      }),
      { numRuns: 300 },
    )
  })

  it.each([
    '__mdb_internal_verifier',
    'mongosync_reserved_for_internal_use',
    'tandem_internal',
    'mongosync_internal_tandem',
    'admin',
  ])('in database %s changes nothing that is synced', (database) => {
    const bytes = documentOf([
      { name: 'operationType', value: string('insert') },
      { name: 'ns', value: namespaceOf(['db', database], ['coll', 'things']) },
    ])
    expect(parseChangeEvent(bytes)).toMatchObject({ kind: 'silent', database })
  })

  it('about a whole database has no collection', () => {
    const event = parseChangeEvent(
      documentOf([
        { name: 'operationType', value: string('dropDatabase') },
        { name: 'ns', value: namespaceOf(['db', 'app']) },
      ]),
    )
    expect(event).toMatchObject({ database: 'app', collection: '', uuid: '', idElement: null, document: null })
  })

  it('has its namespace parsed by the names of the fields, not by their order', () => {
    const ns = namespaceOf(['coll', 'things'], ['db', 'app'])
    expect(parseChangeEvent(documentOf([{ name: 'ns', value: ns }]))).toMatchObject({
      database: 'app',
      collection: 'things',
    })
  })

  it('of a reshardCollection has the UUID of the new collection besides that of the former one', () => {
    const description = typedDocument(documentOf([{ name: 'reshardUUID', value: typedUuid }]))
    const event = parseChangeEvent(documentOf([{ name: 'operationDescription', value: description }]))
    expect(Buffer.from(event.reshardedUuid, 'latin1')).toEqual(uuid)
    // The projection of other events leaves an empty document.
    const empty = typedDocument(documentOf([]))
    expect(parseChangeEvent(documentOf([{ name: 'operationDescription', value: empty }])).reshardedUuid).toBe('')
  })

  it('has no document if the server has left the document out', () => {
    const withNull = [{ name: 'fullDocument', value: typed(0x0a) }]
    expect(parseChangeEvent(documentOf(withNull)).document).toBeNull()
    expect(parseChangeEvent(documentOf([])).document).toBeNull()
  })
})
