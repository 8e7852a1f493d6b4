import { BSON, type Document, Long, Timestamp, UUID } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { type ChangeEvent, parseChangeEvent } from '../../src/domain/change-event.ts'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { positionOfEvent, type StreamContent, stagesAfterStream } from '../../src/mongo/change-stream.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { oneSet } from './one-set.ts'

/**
 * Tests change events of 7.0 and 8.0. Their fields come from the manual's pages on change events and from the server's source
 * (docs/server-versions.md): src/mongo/db/pipeline/change_stream_event_transform.cpp, and for oplog entries
 * src/mongo/db/repl/change_stream_oplog_notification.cpp. A server passes these events through the stages that follow
 * `$changeStream` in tandem's pipeline, and tandem parses the result.
 */

const one = oneSet()
const uuid = new UUID('00ff1080-7f0a-4bd0-8cf1-fedcba987654')
const newUuid = new UUID('11ff1080-7f0a-4bd0-8cf1-fedcba987654')
const ns = { db: 'app', coll: 'things' }
const lsid = { id: new UUID(), uid: Buffer.alloc(32, 7) }
const seconds = 1_764_000_000

/** Returns a token. It begins with the time of its event, and the rest differs between events of the same time. */
const tokenOf = (ordinal: number, rest: string) => {
  const time = seconds.toString(16).padStart(8, '0') + ordinal.toString(16).padStart(8, '0')
  return { _data: `82${time}${rest}`.toUpperCase() }
}

const event = (operationType: string, fields: Document, ordinal = 1, rest = '2b042c0100296e5a1004'): Document => ({
  _id: tokenOf(ordinal, rest),
  operationType,
  clusterTime: new Timestamp({ t: seconds, i: ordinal }),
  wallTime: new Date(seconds * 1_000),
  ...fields,
})

const ofThings = (operationType: string, fields: Document = {}): Document =>
  event(operationType, { collectionUUID: uuid, ns, ...fields })

async function replay(events: Document[], content: StreamContent = {}): Promise<Buffer[]> {
  return await RawCursor.readAll(one.cluster, 'admin', {
    aggregate: 1,
    pipeline: [{ $documents: { $literal: events } }, ...stagesAfterStream(content, false)],
    cursor: {},
  })
}

async function parsed(one: Document, content: StreamContent = {}): Promise<ChangeEvent> {
  const [bytes] = await replay([one], content)
  if (!bytes) throw new Error('the stages removed the event')
  expect(positionOfEvent(bytes).time).toBe(clusterTime(seconds, 1))
  return parseChangeEvent(bytes)
}

const resharded = (provenance: string | null, shardKey: Document, oldShardKey: Document, rest: Document = {}) =>
  ofThings('reshardCollection', {
    operationDescription: {
      reshardUUID: newUuid,
      shardKey,
      oldShardKey,
      unique: false,
      ...(provenance ? { provenance } : {}),
      ...rest,
    },
  })

const definitions: [release: string, what: string, event: Document][] = [
  [
    '7.0',
    'shardCollection',
    ofThings('shardCollection', {
      operationDescription: { shardKey: { k: 'hashed' }, unique: false, presplitHashedZones: false },
    }),
  ],
  [
    '7.0',
    'refineCollectionShardKey',
    ofThings('refineCollectionShardKey', { operationDescription: { shardKey: { k: 1, j: 1 }, oldShardKey: { k: 1 } } }),
  ],
  [
    '7.0',
    'reshardCollection',
    resharded(
      null,
      { j: 1 },
      { k: 1 },
      { numInitialChunks: Long.fromNumber(90), zones: [{ zone: 'a', min: { j: 0 }, max: { j: 9 } }] },
    ),
  ],
  [
    '7.0',
    'collMod of prepareUnique',
    ofThings('modify', {
      operationDescription: { index: { name: 'k_1', prepareUnique: true } },
      stateBeforeChange: { collectionOptions: {}, indexOptions: { prepareUnique: false } },
    }),
  ],
  [
    '7.0',
    'createIndexes of a compound wildcard index',
    ofThings('createIndexes', {
      operationDescription: {
        indexes: [{ v: 2, key: { k: 1, '$**': 1 }, name: 'k_1_$**_1', wildcardProjection: { k: 0 } }],
      },
    }),
  ],
  [
    '7.0',
    'a rename over another collection',
    ofThings('rename', {
      to: { db: 'app', coll: 'former' },
      operationDescription: { to: { db: 'app', coll: 'former' }, dropTarget: newUuid },
    }),
  ],
  ['8.0', 'reshardCollection to the same key', resharded('reshardCollection', { k: 1 }, { k: 1 })],
  [
    '8.0',
    'moveCollection',
    resharded('moveCollection', { _id: 1 }, { _id: 1 }, { numInitialChunks: Long.fromNumber(1) }),
  ],
  ['8.0', 'unshardCollection', resharded('unshardCollection', { _id: 1 }, { k: 1 }, { collation: { locale: 'fr' } })],
  ['8.2', 'rewriteCollection', resharded('rewriteCollection', { k: 1 }, { k: 1 })],
  [
    '8.1',
    'create, with the type of the namespace',
    ofThings('create', {
      operationDescription: { idIndex: { v: 2, key: { _id: 1 }, name: '_id_' } },
      nsType: 'collection',
    }),
  ],
  [
    '8.1',
    'create of a view',
    event('create', { ns, operationDescription: { viewOn: 'base', pipeline: [] }, nsType: 'view' }),
  ],
  [
    '8.1',
    'create of a time series',
    event('create', {
      ns,
      operationDescription: { viewOn: 'system.buckets.things', pipeline: [] },
      nsType: 'timeseries',
    }),
  ],
]

describe('an event of a definition', () => {
  it.each(definitions)('of %s, %s, names the collection', async (_release, _what, written) => {
    const found = await parsed(written)
    const expected = written['collectionUUID'] ? fromUuid(uuid) : ''
    expect(found).toMatchObject({ kind: 'definition', database: 'app', collection: 'things', uuid: expected })
    expect(found).toMatchObject({ time: clusterTime(seconds, 1), idElement: null, document: null })
    const isResharded = written['operationType'] === 'reshardCollection'
    expect(found.reshardedUuid).toBe(isResharded ? fromUuid(newUuid) : '')
    expect(found.to).toEqual(written['to'] ? { database: 'app', collection: 'former' } : null)
  })

  it.each(definitions)(
    'of %s, %s, is read by every partition, also with a filter',
    async (_release, _what, written) => {
      const { events: selected } = new Selection(one.cluster, {
        includeNamespaces: [{ database: 'app', collections: ['things'] }],
        excludeNamespaces: null,
      })
      for (const partition of [0, 1, 2, 3]) {
        const only = { partitions: [partition], count: 4, whole: [] }
        expect(await parsed(written, { selected, only })).toMatchObject({ kind: 'definition', collection: 'things' })
      }
    },
  )
})

const reshardingUUID = newUuid
const silent: [release: string, what: string, event: Document][] = [
  ['7.0', 'reshardBegin', ofThings('reshardBegin', { reshardingUUID, operationDescription: { reshardingUUID } })],
  [
    '7.0',
    'reshardDoneCatchUp',
    ofThings('reshardDoneCatchUp', { ns: { db: 'app', coll: `system.resharding.${newUuid}` }, reshardingUUID }),
  ],
  [
    '8.0',
    'reshardBlockingWrites',
    ofThings('reshardBlockingWrites', {
      reshardingUUID,
      operationDescription: { reshardingUUID, type: 'reshardFinalOp' },
    }),
  ],
  [
    '7.0',
    'migrateChunkToNewShard',
    ofThings('migrateChunkToNewShard', { operationDescription: { fromShardId: 'a', toShardId: 'b' } }),
  ],
  [
    '7.0',
    'migrateLastChunkFromShard',
    ofThings('migrateLastChunkFromShard', { operationDescription: { shardId: 'a' } }),
  ],
  [
    '7.0',
    'startIndexBuild',
    ofThings('startIndexBuild', { operationDescription: { indexes: [{ v: 2, key: { k: 1 }, name: 'k_1' }] } }),
  ],
  [
    '7.0',
    'abortIndexBuild',
    ofThings('abortIndexBuild', { operationDescription: { indexes: [{ v: 2, key: { k: 1 }, name: 'k_1' }] } }),
  ],
  [
    '8.0',
    'endOfTransaction, which has no namespace',
    event('endOfTransaction', {
      lsid,
      txnNumber: Long.fromNumber(3),
      operationDescription: { lsid, txnNumber: Long.fromNumber(3) },
    }),
  ],
]

it.each(silent)('an event of %s, %s, changes nothing', async (_release, _what, written) => {
  expect(await parsed(written)).toMatchObject({ kind: 'silent', reshardedUuid: '', idElement: null })
})

describe('the events of documents', () => {
  it('that 8.0 emits for one insert of several documents have the same time, and each has its own position', async () => {
    const inserted = [1, 2, 3].map((_id) =>
      event(
        'insert',
        { collectionUUID: uuid, ns, documentKey: { _id }, fullDocument: { _id, n: 'x' } },
        1,
        `2b042c0${_id}`,
      ),
    )
    const bytes = await replay(inserted)
    const events = bytes.map(parseChangeEvent)
    expect(events.map(({ kind, time }) => [kind, time])).toEqual(
      inserted.map(() => ['insert', clusterTime(seconds, 1)]),
    )
    expect(events.map(({ document }) => document && BSON.deserialize(document))).toEqual(
      [1, 2, 3].map((_id) => ({ _id, n: 'x' })),
    )
    expect(new Set(bytes.map((one) => positionOfEvent(one).token._data)).size).toBe(3)
  })

  it('that 7.0 emits for an update, with the fields for paths and truncated arrays, are reduced to the document key', async () => {
    const found = await parsed(
      ofThings('update', {
        documentKey: { k: 5, _id: 'a' },
        lsid,
        txnNumber: Long.fromNumber(2),
        updateDescription: {
          updatedFields: { 'a.b': 1 },
          removedFields: [],
          truncatedArrays: [{ field: 'c', newSize: 2 }],
          disambiguatedPaths: { 'a.b': ['a.b'] },
        },
      }),
    )
    expect(found).toMatchObject({ kind: 'update', uuid: fromUuid(uuid), document: null, reshardedUuid: '' })
    expect(found.idElement).toEqual(Buffer.from('\u0002_id\0\u0002\0\0\0a\0', 'latin1'))
  })
})
