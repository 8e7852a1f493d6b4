import { type ClusterTime, clusterTimeAt } from './cluster-time.ts'
import { bsonType, findSpan, skipValue, spans } from './raw-bson.ts'
import { uuidOfToken } from './resume-token.ts'

/**
 * What tandem takes from a change event: which document or which collection changed, never how. Offsets are into the
 * event's own bytes; nothing is decoded that is not needed.
 */
export interface ChangeEvent {
  /** `silent` changes nothing; `unknown` is of a release that this one does not know, and must not be passed over. */
  kind: 'insert' | 'replace' | 'update' | 'delete' | 'definition' | 'silent' | 'unknown'
  operationType: string
  time: ClusterTime
  database: string
  collection: string
  /** What a rename makes of it. */
  to: { database: string; collection: string } | null
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

const dataKinds = new Map<string, ChangeEvent['kind']>([
  ['insert', 'insert'],
  ['replace', 'replace'],
  ['update', 'update'],
  ['delete', 'delete'],
])

/**
 * Expanded event types of 6.0 (showExpandedEvents) that say a collection's name, options or indexes changed. Which
 * exactly does not matter: the definition is read from the source.
 */
const definitionKinds = new Set([
  'create',
  'drop',
  'dropDatabase',
  'rename',
  'createIndexes',
  'dropIndexes',
  'modify',
  'shardCollection',
  'refineCollectionShardKey', // not told of by 6.0.27 (see ShardingWatch)
  'reshardCollection', // also what 8.0 sends for unshardCollection and moveCollection
])

/**
 * Kinds that change no document and no definition. Names are those of the server's own list
 * (src/mongo/db/pipeline/document_source_change_stream.h of 6.0 to 8.0): most are sent only where somebody asks for system or
 * migration events, but a router or a later release may send them unasked.
 */
const silentKinds = new Set([
  'invalidate', // of a stream that watches one collection or database
  'startIndexBuild', // the index that results is told of by createIndexes
  'abortIndexBuild',
  'endOfTransaction',
  'migrateChunkToNewShard',
  'migrateLastChunkFromShard',
  'reshardBegin', // reshardCollection follows when it succeeds
  'reshardBlockingWrites',
  'reshardDoneCatchUp',
])

/** Every kind that is not listed here is unknown, and may have changed anything: skipped, the change would be lost silently. */
function kindOf(operationType: string): ChangeEvent['kind'] {
  const data = dataKinds.get(operationType)
  if (data) return data
  if (definitionKinds.has(operationType)) return 'definition'
  return silentKinds.has(operationType) ? 'silent' : 'unknown'
}

export function parseChangeEvent(bytes: Buffer): ChangeEvent {
  const event: ChangeEvent = {
    kind: 'unknown',
    operationType: '',
    time: 0n,
    database: '',
    collection: '',
    to: null,
    uuid: '',
    idElement: null,
    idType: 0,
    idStart: 0,
    idEnd: 0,
    document: null,
  }
  // By hand rather than by `spans`: this loop runs for every event there is. Names are told apart by their length.
  const end = bytes.readInt32LE(0) - 1
  let position = 4
  let tokenStart = 0
  while (position < end) {
    const type = bytes[position] as number
    const nameStart = position + 1
    const nameEnd = bytes.indexOf(0, nameStart)
    const valueStart = nameEnd + 1
    position = skipValue(bytes, type, valueStart)
    switch (nameEnd - nameStart) {
      case 3: // _id
        tokenStart = valueStart
        break
      case 13: // operationType
        event.operationType = bytes.latin1Slice(valueStart + 4, position - 1)
        break
      case 11: // clusterTime, documentKey
        if (bytes[nameStart] === 0x63 /* c */) event.time = clusterTimeAt(bytes, valueStart)
        else takeId(event, bytes, valueStart)
        break
      case 14: // collectionUUID
        event.uuid = bytes.latin1Slice(valueStart + 5, position)
        break
      case 2: // ns, to
        if (bytes[nameStart] === 0x6e /* n */) takeNamespace(event, bytes, valueStart)
        else {
          event.to = { database: '', collection: '' }
          takeNamespace(event.to, bytes, valueStart)
        }
        break
      case 12: // fullDocument
        if (type === bsonType.document) event.document = bytes.subarray(valueStart, position)
        break
    }
  }
  event.kind = kindOf(event.operationType)
  // Only a source older than 6.0 leaves it out.
  if (event.uuid === '' && event.idElement && tokenStart > 0) event.uuid = uuidInToken(bytes, tokenStart)
  return event
}

function uuidInToken(bytes: Buffer, offset: number): string {
  const data = findSpan(bytes, '_data', offset)
  return data ? uuidOfToken(bytes.latin1Slice(data.valueStart + 4, data.valueEnd - 1)) : ''
}

function takeId(event: ChangeEvent, bytes: Buffer, offset: number): void {
  const id = findSpan(bytes, '_id', offset)
  if (!id) return
  event.idElement = bytes.subarray(id.start, id.valueEnd)
  event.idType = id.type
  event.idStart = id.valueStart
  event.idEnd = id.valueEnd
}

function takeNamespace(into: { database: string; collection: string }, bytes: Buffer, offset: number): void {
  for (const part of spans(bytes, offset)) {
    const text = bytes.utf8Slice(part.valueStart + 4, part.valueEnd - 1)
    if (bytes[part.nameStart] === 0x64 /* db */) into.database = text
    else into.collection = text
  }
}
