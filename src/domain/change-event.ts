import { type ClusterTime, clusterTimeAt } from './cluster-time.ts'
import { bsonType, findSpan, spans } from './raw-bson.ts'

/**
 * What tandem takes from a change event: which document or which collection changed, never how. Offsets are into the
 * event's own bytes; nothing is decoded that is not needed.
 */
export interface ChangeEvent {
  kind: 'insert' | 'replace' | 'update' | 'delete' | 'definition' | 'other'
  operationType: string
  time: ClusterTime
  database: string
  collection: string
  /** 16 bytes as latin1 text; empty for views and databases. */
  uuid: string
  /** The whole `_id` element of documentKey, a slice of the event. */
  idElement: Buffer | null
  idType: number
  idStart: number
  idEnd: number
  /** The new document of an insert or replace, when small enough to travel in the event. */
  document: Buffer | null
}

const dataKinds: Record<string, ChangeEvent['kind']> = {
  insert: 'insert',
  replace: 'replace',
  update: 'update',
  delete: 'delete',
}

/**
 * Expanded event types of 6.0 (showExpandedEvents) that say a collection's name, options or indexes changed. Which
 * exactly does not matter: the definition is read from the source.
 */
const definitionKinds = new Set(['create', 'drop', 'dropDatabase', 'rename', 'createIndexes', 'dropIndexes', 'modify'])

export function parseChangeEvent(bytes: Buffer): ChangeEvent {
  const event: ChangeEvent = {
    kind: 'other',
    operationType: '',
    time: 0n,
    database: '',
    collection: '',
    uuid: '',
    idElement: null,
    idType: 0,
    idStart: 0,
    idEnd: 0,
    document: null,
  }
  for (const span of spans(bytes)) {
    switch (bytes.latin1Slice(span.nameStart, span.nameEnd)) {
      case 'operationType':
        event.operationType = bytes.latin1Slice(span.valueStart + 4, span.valueEnd - 1)
        break
      case 'clusterTime':
        event.time = clusterTimeAt(bytes, span.valueStart)
        break
      case 'collectionUUID':
        event.uuid = bytes.latin1Slice(span.valueStart + 5, span.valueEnd)
        break
      case 'ns':
        for (const part of spans(bytes, span.valueStart)) {
          const text = bytes.utf8Slice(part.valueStart + 4, part.valueEnd - 1)
          if (bytes[part.nameStart] === 0x64 /* d */) event.database = text
          else event.collection = text
        }
        break
      case 'documentKey': {
        const id = findSpan(bytes, '_id', span.valueStart)
        if (id) {
          event.idElement = bytes.subarray(id.start, id.valueEnd)
          event.idType = id.type
          event.idStart = id.valueStart
          event.idEnd = id.valueEnd
        }
        break
      }
      case 'fullDocument':
        if (span.type === bsonType.document) event.document = bytes.subarray(span.valueStart, span.valueEnd)
        break
    }
  }
  event.kind = dataKinds[event.operationType] ?? (definitionKinds.has(event.operationType) ? 'definition' : 'other')
  return event
}
