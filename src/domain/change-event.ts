import { type ClusterTime, clusterTimeAt } from './cluster-time.ts'
import { isUserDatabase } from './namespace.ts'
import { bsonType, findSpan, skipValue, spans } from './raw-bson.ts'
import { uuidOfToken } from './resume-token.ts'

/**
 * The parts of a change event that tandem decodes: which document or collection changed, and a small inserted or
 * replaced document, but not the changes of an update.
 */
export interface ChangeEvent {
  /**
   * A `silent` event changes nothing that is synced. An `unknown` event comes from a release that tandem does not know,
   * and must not be skipped.
   */
  kind: 'insert' | 'replace' | 'update' | 'delete' | 'definition' | 'silent' | 'unknown'
  operationType: string
  time: ClusterTime
  database: string
  collection: string
  /** The new name, for a rename. */
  to: { database: string; collection: string } | null
  /** The collection's UUID: 16 bytes as latin1 text; empty for views and databases. */
  uuid: string
  /** The UUID of the collection that reshardCollection wrote, in the same form; empty for other events. */
  reshardedUuid: string
  /** The UUID of the collection that a rename has replaced, in the same form; empty for other events. */
  replacedUuid: string
  /** True if the event reports that a capped collection was created. */
  createsCapped: boolean
  /** The whole `_id` element of documentKey, as a slice of the event; null if the event concerns no document. */
  idElement: Buffer | null
  /**
   * The whole documentKey, as a slice of the event: `_id` and the values of the shard key before the change. Null if it
   * has no field except `_id`, or if it is longer than `documentKeyMax`.
   */
  documentKey: Buffer | null
  /** BSON type of the `_id`, and the offsets of its value in the bytes of the event. */
  idType: number
  idStart: number
  idEnd: number
  /**
   * True if documentKey has other fields than `_id`. When the event occurred, the source's collection had a shard
   * key other than `_id` alone. The shard key in the catalog may differ from it.
   */
  keyed: boolean
  /** The new document of an insert or replace; null if it is too large, because the stream then omits it. */
  document: Buffer | null
}

const dataKinds = new Map<string, ChangeEvent['kind']>([
  ['insert', 'insert'],
  ['replace', 'replace'],
  ['update', 'update'],
  ['delete', 'delete'],
])

/**
 * Event types that report a changed definition: a collection's existence, name, options, indexes or shard key. Most are
 * sent only with showExpandedEvents (6.0 and later). The exact change does not matter, because tandem reads the
 * definition from the source.
 *
 * The server has no event type `moveCollection` or `unshardCollection`. Both are commands of 8.0 that the server
 * carries out as a resharding (`ReshardingProvenanceEnum` in src/mongo/db/s). It reports the end of the resharding as
 * `reshardCollection` (`notifyChangeStreamsOnReshardCollectionComplete`). Neither the server's list of event types
 * (src/mongo/db/pipeline/document_source_change_stream.h) nor the manual's
 * (https://www.mongodb.com/docs/manual/reference/change-events/) has the two names. An event with such a name would be
 * unknown, and the sync would end in FAILED.
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
  'refineCollectionShardKey', // 6.0.27 does not emit it (see ShardingWatch)
  'reshardCollection', // also the end of moveCollection and unshardCollection
])

/**
 * Event types that change no document and no definition. The names are from the server's own list
 * (src/mongo/db/pipeline/document_source_change_stream.h of 6.0 to 8.0). Most are sent only to streams that request
 * system or migration events, but a router or a later release may send them unrequested.
 */
const silentKinds = new Set([
  'invalidate', // only in a stream that watches one collection or database
  'startIndexBuild', // createIndexes reports the finished index
  'abortIndexBuild',
  'endOfTransaction',
  'migrateChunkToNewShard',
  'migrateLastChunkFromShard',
  'reshardBegin', // reshardCollection follows when it succeeds
  'reshardBlockingWrites',
  'reshardDoneCatchUp',
])

/**
 * An event of a type that is not listed above is unknown, and may report any change. If tandem skipped it, the change
 * would be lost silently.
 */
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
    reshardedUuid: '',
    replacedUuid: '',
    createsCapped: false,
    idElement: null,
    documentKey: null,
    idType: 0,
    idStart: 0,
    idEnd: 0,
    keyed: false,
    document: null,
  }
  // This loop does not use `spans` because it runs for every event. It distinguishes field names by their length.
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
      case 20: // operationDescription
        // Another field may have a name of this length, and another release may give the field another type.
        if (type === bsonType.document && bytes.latin1Slice(nameStart, nameEnd) === 'operationDescription') {
          event.reshardedUuid = uuidNamed('reshardUUID', bytes, valueStart)
          event.replacedUuid = uuidNamed('dropTarget', bytes, valueStart)
          const capped = findSpan(bytes, 'capped', valueStart)
          event.createsCapped = capped?.type === bsonType.boolean && bytes[capped.valueStart] === 1
        }
        break
      case 12: // fullDocument
        if (type === bsonType.document) event.document = bytes.subarray(valueStart, position)
        break
    }
  }
  event.kind = isUserDatabase(event.database) ? kindOf(event.operationType) : 'silent'
  // Only sources older than 6.0 omit the UUID.
  if (event.uuid === '' && event.idElement && tokenStart > 0) event.uuid = uuidInToken(bytes, tokenStart)
  return event
}

/**
 * Returns a UUID from the operationDescription at this offset; empty if it has no such field. In a reshardCollection
 * event, `reshardUUID` is the UUID of the operation and also that of the new collection. In the event of a rename over
 * an existing collection, `dropTarget` is the UUID of that collection. Both were observed on 6.0.27.
 */
function uuidNamed(name: string, bytes: Buffer, offset: number): string {
  const found = findSpan(bytes, name, offset)
  return found?.type === bsonType.binary ? bytes.latin1Slice(found.valueStart + 5, found.valueEnd) : ''
}

function uuidInToken(bytes: Buffer, offset: number): string {
  const data = findSpan(bytes, '_data', offset)
  return data ? uuidOfToken(bytes.latin1Slice(data.valueStart + 4, data.valueEnd - 1)) : ''
}

/** The length of a document without fields. */
const emptyLength = 5
/**
 * Maximum length in bytes of a documentKey that is kept. A command may contain a thousand of them, and the server does
 * not limit the size of shard key values.
 */
const documentKeyMax = 1_024

function takeId(event: ChangeEvent, bytes: Buffer, offset: number): void {
  const id = findSpan(bytes, '_id', offset)
  if (!id) return
  event.idElement = bytes.subarray(id.start, id.valueEnd)
  const length = bytes.readInt32LE(offset)
  event.keyed = length > emptyLength + event.idElement.length
  if (event.keyed && length <= documentKeyMax) event.documentKey = bytes.subarray(offset, offset + length)
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
