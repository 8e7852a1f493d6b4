import { BSON, type Document, Long, Timestamp } from 'mongodb'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { type Clock, epochMS } from './clock.ts'
import { type Content, encodeDocument, versionOf } from './content.ts'
import { collectionName, database, EventLog, type Moment } from './event-log.ts'
import { listCollections, listIndexes } from './listing.ts'
import type { Sender } from './operations.ts'
import { StoredCollection } from './stored-collection.ts'
import { hasMore, nextBatch, openStream, type StreamCursor } from './streams.ts'
import { Walks } from './walks.ts'
import { finished, int32At, int32Of, numberOf, serverError, spanOf } from './wire.ts'

/** Observes all writes of a server at the moment they take effect. */
export interface Witness {
  wrote: (sender: Sender, document: number, inserts: boolean) => void
  stored: (sender: Sender, collection: string, before: Document | undefined, after: Document) => void
  removed: (sender: Sender, collection: string, documents: Document[]) => void
  defined: (sender: Sender, collection: number) => void
}

/** A `getMore` on a change stream that waits for events. */
export interface Awaiting {
  cursor: StreamCursor
  id: Long
  patienceMS: number
}

/** Number of commands of one kind, and of the documents that they read or wrote. */
export interface Cost {
  commands: number
  documents: number
}

const someSecond = Math.floor(epochMS / 1_000)

/**
 * One cluster as its clients see it: documents, definitions, change stream, and on the destination tandem's metadata database. Each
 * command takes effect atomically. The server supports the commands that tandem sends and throws an error for any other.
 */
export class Server {
  readonly side: 'source' | 'destination'
  readonly log: EventLog
  readonly metadata = new Map<string, StoredCollection>()
  readonly indexes: Map<string, Document>[]
  readonly costs = new Map<string, Cost>()
  witness: Witness | null = null
  /** The cluster time; for a sharded source, the newest that any shard knows. */
  latest: () => Moment
  onNote: () => void = () => {}
  /** How far the server's clock is ahead of true time, in ms. */
  skewMS = 0
  now: () => number
  /** For mutations: changes a statement before it is executed. */
  alter: (collection: string, statement: Document) => Document = (_, statement) => statement
  readonly #content: Content
  readonly #streams = new Map<string, StreamCursor>()
  readonly walks: Walks
  #cursors = 0
  #ordinal = 0

  constructor(side: 'source' | 'destination', clock: Clock, content: Content) {
    this.side = side
    this.#content = content
    this.log = new EventLog(side, content)
    this.walks = new Walks(content, (document) => this.#read(document))
    this.indexes = Array.from({ length: content.collections }, () => new Map())
    this.now = () => Math.floor(epochMS + clock.now + this.skewMS)
    this.latest = () => ({ second: someSecond + Math.floor(clock.now / 1_000), ordinal: this.#ordinal })
    this.log.onPublished = () => this.#wakeStreams()
  }

  collection(name: string): StoredCollection {
    let found = this.metadata.get(name)
    if (!found) {
      found = new StoredCollection(
        () => this.now(),
        (document) => this.#content.partitionOf(document),
      )
      this.metadata.set(name, found)
    }
    return found
  }

  /** Drops all cursors, as after an election. */
  forgetCursors(): void {
    for (const { awaiting } of this.#streams.values()) awaiting?.()
    this.#streams.clear()
    this.walks.clear()
  }

  execute(sender: Sender, where: string, command: Document, raw: boolean): Document | Awaiting {
    const [verb] = Object.keys(command) as [string]
    switch (verb) {
      case 'find':
        return this.#reply(this.#find(where, command, raw))
      case 'aggregate':
        return this.#reply(this.#aggregate(command, raw))
      case 'distinct':
        return this.#reply({ values: this.#distinct(command) })
      case 'getMore':
        return this.#getMore(command)
      case 'killCursors':
        for (const id of command['cursors'] as Long[]) this.#kill(String(id))
        return this.#reply({})
      case 'insert':
      case 'update':
      case 'delete':
        return this.#reply(this.#write(sender, where, verb, command))
      case 'findAndModify':
        return this.#reply(this.#modify(sender, command))
      case 'createIndexes':
      case 'dropIndexes':
        return this.#reply(this.#define(sender, where, command))
      case 'listCollections':
        return this.#reply(listCollections(this.side, this.#content.collections, where, command))
      case 'listIndexes':
        return this.#reply(listIndexes(this.indexes, command))
      case 'listDatabases':
        return this.#reply({ databases: [{ name: database }] })
      case 'appendOplogNote':
        this.#advance()
        this.onNote()
        return this.#reply({})
      case 'serverStatus':
      case 'hello':
      case 'ping':
        return this.#reply({})
      default:
        throw new Error(`the simulated ${this.side} does not support ${verb}`)
    }
  }

  /** Stores a version of a document on the destination; version 0 deletes it. */
  put(document: number, version: number): void {
    const former = this.#content.onDestination[document] as number
    this.#content.onDestination[document] = version
    this.#advance()
    const kind = version === 0 ? 'delete' : former === 0 ? 'insert' : 'replace'
    const collection = this.#content.collectionOf(document)
    this.log.events.push({ ...this.latest(), kind, collection, document, version })
    this.log.frontier = this.latest()
    this.#wakeStreams()
  }

  /** Returns the reply to a waiting `getMore`. */
  answer({ cursor, id }: Awaiting): Document {
    if (!this.#streams.has(String(id))) throw serverError(43, 'cursor not found')
    if (this.side === 'destination') this.log.frontier = this.latest()
    const { events, token } = nextBatch(cursor)
    this.#count('change stream', events.length)
    return this.#reply({
      cursor: { id, ns: 'admin.$cmd.aggregate', nextBatch: events, postBatchResumeToken: { _data: token } },
    })
  }

  #advance(): void {
    this.#ordinal += 1
  }

  #wakeStreams(): void {
    for (const cursor of this.#streams.values()) if (cursor.awaiting && hasMore(cursor)) cursor.awaiting()
  }

  #reply(fields: Document): Document {
    const { second, ordinal } = this.latest()
    return { ...fields, ok: 1, operationTime: new Timestamp({ t: second, i: ordinal }) }
  }

  #count(what: string, documents: number): void {
    const cost = this.costs.get(what) ?? { commands: 0, documents: 0 }
    cost.commands += 1
    cost.documents += documents
    this.costs.set(what, cost)
  }

  #open(): Long {
    this.#cursors += 1
    return Long.fromNumber(this.#cursors)
  }

  #kill(id: string): void {
    this.#streams.get(id)?.awaiting?.()
    this.#streams.delete(id)
    this.walks.end(id)
  }

  #aggregate(command: Document, raw: boolean): Document {
    const { aggregate, pipeline } = command as { aggregate: string | number; pipeline: Document[] }
    if (pipeline[0]?.['$changeStream']) {
      const id = this.#open()
      this.#streams.set(String(id), openStream(this.log, pipeline))
      return {
        cursor: {
          id,
          ns: 'admin.$cmd.aggregate',
          firstBatch: [],
          postBatchResumeToken: pipeline[0]['$changeStream'].resumeAfter ?? { _data: this.#startToken(pipeline) },
        },
      }
    }
    if (pipeline[1]?.['$project']?.s) return finished([this.walks.size(numberOf(command))], `${database}.none`)
    if (pipeline[0]?.['$sample']) return finished(this.walks.sample(numberOf(command)), `${database}.none`)
    if (typeof aggregate === 'number' || pipeline[0]?.['$collStats'] || pipeline[0]?.['$group']) {
      return finished([], `${database}.none`)
    }
    const found = this.#staged(aggregate, pipeline)
    this.#count(`read ${aggregate}`, found.length)
    return finished(
      raw ? found.map((one) => Buffer.from(BSON.serialize(one))) : found,
      `${metadataDatabase}.${aggregate}`,
    )
  }

  #staged(name: string, pipeline: Document[]): Document[] {
    const collection = this.collection(name)
    let found = collection.documents()
    for (const stage of pipeline) {
      const { $match: match, $set: fields, $group: groups, $sort: sort, $unionWith: union, $limit: limit } = stage
      if (union) found = [...found, ...this.#staged(union.coll, union.pipeline)]
      if (limit) found = found.slice(0, limit)
      if (sort) found = collection.sorted(found, sort)
      if (groups) found = collection.group(found, groups)
      if (match) found = found.filter((document) => collection.matches(document, match))
      if (fields) {
        found = found.map((document) => {
          const shown = { ...document }
          for (const [path, expression] of Object.entries(fields))
            shown[path] = collection.evaluate(document, expression)
          return shown
        })
      }
    }
    return found
  }

  /** Returns a resume token that sorts before all events of a stream that begins at a time. */
  #startToken(pipeline: Document[]): string {
    const time = pipeline[0]?.['$changeStream'].startAtOperationTime as Timestamp
    const hex = (value: number): string => value.toString(16).padStart(8, '0')
    return `82${hex(time.getHighBitsUnsigned())}${hex(Math.max(0, time.getLowBitsUnsigned() - 1))}ffffffffff`
  }

  #find(where: string, command: Document, raw: boolean): Document {
    if (where === metadataDatabase) {
      const name = command['find'] as string
      const { filter = {}, sort, limit } = command
      const stored = this.collection(name)
      const found = raw ? stored.findRaw(filter, sort, limit) : stored.find(filter, sort, limit)
      this.#count(`read ${name}`, found.length)
      return finished(found, `${where}.${name}`)
    }
    if (where !== database) return finished([], `${where}.none`)
    const number = numberOf(command)
    const ids = command['filter']?._id?.$in as
      | { serializeInto: (target: Uint8Array, at: number) => number }[]
      | undefined
    const ns = `${where}.${collectionName(number)}`
    if (!ids) {
      const id = this.#open()
      this.walks.begin(String(id), number, command)
      return { cursor: { ...this.#walkBatch(id, command['batchSize'] ?? 101), ns } }
    }
    const found = ids.map(int32Of).flatMap((document) => this.#read(document))
    if (!raw) throw new Error('documents are read as bytes')
    this.#count('read documents', found.length)
    return finished(found, ns)
  }

  #read(document: number): Buffer[] {
    if (!(document >= 0 && document < this.#content.count)) return []
    const version =
      this.side === 'source' ? this.#content.onSource(document) : (this.#content.onDestination[document] as number)
    return version === 0 ? [] : [encodeDocument(document, version)]
  }

  #walkBatch(id: Long, size: number): Document {
    const { batch, over } = this.walks.next(String(id), size)
    this.#count('read documents', batch.length)
    return { id: over ? Long.ZERO : id, firstBatch: batch, nextBatch: batch }
  }

  #distinct({ distinct: name, key, query }: Document): unknown[] {
    const collection = this.collection(name)
    const found = collection.find(query)
    this.#count(`read ${name}`, found.length)
    return collection.group(found, { _id: `$${key}` }).map(({ _id }) => _id)
  }

  #getMore(command: Document): Document | Awaiting {
    const id = command['getMore'] as Long
    const cursor = this.#streams.get(String(id))
    if (!cursor) {
      if (!this.walks.has(String(id))) throw serverError(43, 'cursor not found')
      return this.#reply({
        cursor: { ...this.#walkBatch(id, command['batchSize'] ?? 101), ns: `${database}.${command['collection']}` },
      })
    }
    const awaiting = { cursor, id, patienceMS: command['maxTimeMS'] ?? 1_000 }
    return hasMore(cursor) ? this.answer(awaiting) : awaiting
  }

  #write(sender: Sender, where: string, verb: 'insert' | 'update' | 'delete', command: Document): Document {
    if (where === metadataDatabase) {
      const name = command[verb] as string
      return command['startTransaction'] ? this.#preview(name, verb, command) : this.#store(sender, name, verb, command)
    }
    const field = { insert: 'documents', update: 'updates', delete: 'deletes' }[verb]
    const [, ...statements] = (command[field] as { parts: Buffer[] }).parts
    if (command['startTransaction']) return { n: statements.length }
    numberOf(command)
    const writeErrors: Document[] = []
    for (const [index, statement] of statements.entries()) {
      const document = int32At(verb === 'insert' ? statement : spanOf(statement, 'q'))
      if (verb === 'insert' && this.#content.onDestination[document] !== 0) {
        writeErrors.push({ index, code: 11000, errmsg: 'duplicate key', keyPattern: { _id: 1 } })
        continue
      }
      const version = verb === 'delete' ? 0 : versionOf(verb === 'insert' ? statement : spanOf(statement, 'u'))
      this.put(document, version)
      this.witness?.wrote(sender, document, verb === 'insert')
    }
    this.#count('write documents', statements.length)
    return { n: statements.length - writeErrors.length, ...(writeErrors.length > 0 ? { writeErrors } : {}) }
  }

  /** Returns the reply to the statements of a transaction. They have no visible effect before its commit. */
  #preview(name: string, verb: 'insert' | 'update' | 'delete', command: Document): Document {
    const { witness } = this
    const restore = this.collection(name).snapshot()
    this.witness = null
    try {
      return this.#store({} as Sender, name, verb, command)
    } finally {
      restore()
      this.witness = witness
    }
  }

  #store(sender: Sender, name: string, verb: 'insert' | 'update' | 'delete', command: Document): Document {
    const collection = this.collection(name)
    const writeErrors: Document[] = []
    let n = 0
    const statements = command[verb === 'delete' ? 'deletes' : 'updates'] as Document[]
    for (const [index, sent] of statements.entries()) {
      const statement = this.alter(name, sent)
      if (verb === 'delete') {
        const removed = collection.delete(statement)
        n += removed.length
        this.witness?.removed(sender, name, removed)
        continue
      }
      const touched = this.witness ? collection.find(statement['q']) : []
      const { matched, upserted, duplicate } = collection.update(statement)
      if (duplicate) writeErrors.push({ index, code: 11000, errmsg: 'duplicate key' })
      if (!matched) continue
      n += 1
      if (upserted) this.witness?.stored(sender, name, undefined, collection.get(statement['q']['_id']) as Document)
      for (const before of touched)
        this.witness?.stored(sender, name, before, collection.get(before['_id']) as Document)
    }
    this.#count(`write ${name}`, statements.length)
    return { n, ...(writeErrors.length > 0 ? { writeErrors } : {}) }
  }

  /** Executes `findAndModify` by `_id` on the metadata database. Returns the new document; null if none matched. */
  #modify(sender: Sender, { findAndModify: name, query, update, upsert }: Document): Document {
    const { n, writeErrors } = this.#store(sender, name, 'update', { updates: [{ q: query, u: update, upsert }] })
    if (writeErrors) throw serverError(11000, 'duplicate key')
    const changed = n === 1 ? this.collection(name).get(query['_id']) : undefined
    // Encoded as on the wire, so that values such as timestamps keep their types.
    return { value: changed ? BSON.deserialize(BSON.serialize(changed)) : null }
  }

  #define(sender: Sender, where: string, command: Document): Document {
    if (where !== database) return {}
    const number = numberOf(command)
    const indexes = this.indexes[number] as Map<string, Document>
    if (command['dropIndexes']) indexes.delete(command['index'] as string)
    for (const index of (command['indexes'] ?? []) as Document[]) {
      const { plain } = BSON.deserialize(BSON.serialize({ plain: index })) as { plain: Document }
      indexes.set(plain['name'] as string, { v: 2, key: plain['key'], name: plain['name'] })
    }
    this.witness?.defined(sender, number)
    return {}
  }
}
