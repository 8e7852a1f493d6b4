import { type Document, Long } from 'mongodb'
import type { CollectionEntry } from './catalog.ts'
import { changeStreams } from './change-streams.ts'
import {
  argument,
  bypassOf,
  type Changes,
  type Command,
  CommandError,
  changedFields,
  errorCode,
  hasArgument,
  type Mongos,
  send,
  success,
} from './command.ts'
import { cursorIdOf, rememberCursor } from './cursors.ts'
import { decode, decodeExactly, type Field, fieldNamed, fieldsOf, readFields } from './fields.ts'
import { versionsOf } from './shard-versions.ts'
import { type DocumentSequence, documentsOf } from './wire.ts'

/**
 * A multi-statement transaction. The router code of a shard server rejects transactions, so the stand-in sends their statements
 * to the shards itself. Its support for sharded collections is basic: reads and updates go to every owning shard, and a read
 * returns all documents unsorted in one batch. The commit over several shards is the server's own two-phase commit.
 */
export interface Transaction {
  number: string
  /** Shards in the order in which they joined. The first one coordinates the commit. */
  participants: string[]
  readConcern: Field | undefined
}

export const transactionCommands = new Set([
  ...['find', 'getMore', 'insert', 'update', 'delete', 'aggregate', 'findAndModify', 'findandmodify'],
  ...['commitTransaction', 'abortTransaction'],
])

const wouldChangeOwningShard = 283

const sessionKey = (command: Command): string => JSON.stringify(argument(command, 'lsid'))

export async function routeInTransaction(command: Command, mongos: Mongos): Promise<Buffer> {
  const { name } = command
  const transaction = currentTransaction(command, mongos)
  if (name === 'commitTransaction' || name === 'abortTransaction') return await finish(command, mongos, transaction)
  if (name === 'getMore') {
    const host = mongos.cursorHosts.get(cursorIdOf(command))
    if (!host) throw new CommandError(43, 'CursorNotFound', `cursor id ${cursorIdOf(command)} not found`)
    return await send(command, host, changedFields(command, { drop: ['startTransaction', 'readConcern'] }))
  }
  if (name === 'aggregate' && changeStreams.isOpening(command)) {
    throw new CommandError(263, 'OperationNotSupportedInTransaction', 'a transaction cannot open a change stream')
  }
  const database = await mongos.catalog.ensureDatabase(command.database)
  const collection = await mongos.catalog.collection(command.namespace)
  const statement = new Statement(command, mongos, transaction, await versionsOf(collection, database, mongos))
  if (!collection) return await statement.on(database.primary)
  switch (name) {
    case 'insert':
      return await insertSharded(statement, collection)
    case 'update':
    case 'delete':
      return await changeSharded(statement, collection)
    case 'find':
      return await findSharded(statement)
    default:
      throw new CommandError(
        115,
        'CommandNotSupported',
        `the mongos stand-in does not support ${name} on a sharded collection in a transaction`,
      )
  }
}

function currentTransaction(command: Command, { transactions }: Mongos): Transaction {
  const number = String(argument(command, 'txnNumber'))
  if (hasArgument(command, 'startTransaction')) {
    const readConcern = fieldNamed(command.fields, 'readConcern')
    transactions.set(sessionKey(command), { number, participants: [], readConcern })
  }
  const transaction = transactions.get(sessionKey(command))
  if (transaction?.number === number) return transaction
  throw new CommandError(251, 'NoSuchTransaction', `this session has no transaction ${number}`)
}

/** A statement of a transaction, which is sent to one or more of its participants. */
class Statement {
  readonly command: Command
  readonly mongos: Mongos
  #transaction: Transaction
  #versions: Map<string, Document>

  constructor(command: Command, mongos: Mongos, transaction: Transaction, versions: Map<string, Document>) {
    this.command = command
    this.mongos = mongos
    this.#transaction = transaction
    this.#versions = versions
  }

  /** Sends the statement to a shard with `changes` that apply only to this shard. */
  async on(
    shard: string,
    changes: Changes = {},
    sequences: DocumentSequence[] = this.command.sequences,
  ): Promise<Buffer> {
    const { participants, readConcern } = this.#transaction
    const isFirst = participants.length === 0
    const joins = !participants.includes(shard)
    if (joins) participants.push(shard)
    const { clock, catalog, cursorHosts } = this.mongos
    const drop = ['startTransaction', 'readConcern', '$clusterTime', ...(changes.drop ?? [])]
    const add = { ...changes.add, ...this.#versions.get(shard), ...bypassOf(this.command) }
    const fields = changedFields(this.command, { ...changes, drop, add })
    const host = await catalog.host(shard)
    const reply = await send(
      this.command,
      host,
      [
        ...fields,
        ...clock.clusterTimeField(),
        ...fieldsOf({ ...(joins ? { startTransaction: true } : {}), ...(isFirst ? { coordinator: true } : {}) }),
        ...(joins && readConcern ? [readConcern] : []),
      ],
      sequences,
    )
    return rememberCursor(reply, host, cursorHosts)
  }

  owners(): string[] {
    return [...this.#versions.keys()]
  }
}

async function insertSharded(statement: Statement, collection: CollectionEntry): Promise<Buffer> {
  const { catalog } = statement.mongos
  const byShard = new Map<string, Buffer[]>()
  for (const document of documentsToInsert(statement.command)) {
    const { shard } = await catalog.chunkOf(collection, await catalog.keyOf(collection, decodeExactly(document)))
    byShard.set(shard, [...(byShard.get(shard) ?? []), document])
  }
  let inserted = 0
  for (const [shard, documents] of byShard) {
    const sequences = [{ id: 'documents', data: Buffer.concat(documents) }]
    const reply = await statement.on(shard, { drop: ['documents'] }, sequences)
    if (hasFailed(reply)) return reply
    inserted += decode(reply)['n']
  }
  return success({ n: inserted })
}

function documentsToInsert({ fields, sequences }: Command): Buffer[] {
  const sequence = sequences.find(({ id }) => id === 'documents')
  if (sequence) return [...documentsOf(sequence)]
  const array = fieldNamed(fields, 'documents')
  return array ? readFields(array.value).map(({ value }) => value) : []
}

async function changeSharded(statement: Statement, collection: CollectionEntry): Promise<Buffer> {
  const counts: Record<string, number> = {}
  for (const shard of statement.owners()) {
    const reply = await statement.on(shard)
    if (errorCode(reply) === wouldChangeOwningShard) return await moveDocument(statement, collection, shard, reply)
    if (hasFailed(reply)) return reply
    for (const name of ['n', 'nModified']) {
      const count = decode(reply)[name]
      if (count !== undefined) counts[name] = (counts[name] ?? 0) + count
    }
  }
  return success(counts)
}

/**
 * Moves a document to the shard of its new key. The shard rejected the update and returned the document before and after
 * it.
 */
async function moveDocument(
  statement: Statement,
  collection: CollectionEntry,
  from: string,
  refusal: Buffer,
): Promise<Buffer> {
  const { preImage, postImage } = decodeExactly(refusal)
  const { catalog } = statement.mongos
  const key = await catalog.keyOf(collection, postImage)
  const { shard } = await catalog.chunkOf(collection, key)
  const deletes = [{ q: { _id: preImage._id }, limit: 1 }]
  const deleted = await statement.on(from, { name: 'delete', drop: ['updates'], add: { deletes } }, [])
  if (hasFailed(deleted)) return deleted
  const documents = [postImage]
  const inserted = await statement.on(shard, { name: 'insert', drop: ['updates'], add: { documents } }, [])
  return hasFailed(inserted) ? inserted : success({ n: 1, nModified: 1 })
}

async function findSharded(statement: Statement): Promise<Buffer> {
  const documents: Document[] = []
  for (const shard of statement.owners()) {
    const reply = await statement.on(shard, { add: { batchSize: 100_000 } })
    if (hasFailed(reply)) return reply
    documents.push(...decodeExactly(reply)['cursor'].firstBatch)
  }
  return success({ cursor: { id: Long.ZERO, ns: statement.command.namespace, firstBatch: documents } })
}

function hasFailed(reply: Buffer): boolean {
  return errorCode(reply) !== undefined || decode(reply)['writeErrors'] !== undefined
}

async function finish(command: Command, mongos: Mongos, { participants }: Transaction): Promise<Buffer> {
  const [coordinator] = participants
  if (coordinator === undefined) return success()
  const hosts = await Promise.all(participants.map((shard) => mongos.catalog.host(shard)))
  if (command.name === 'abortTransaction') {
    const replies = await Promise.all(hosts.map((host) => send(command, host, command.fields)))
    return replies[0] as Buffer
  }
  if (participants.length === 1) return await send(command, hosts[0] as string, command.fields)
  const add = { participants: participants.map((shardId) => ({ shardId })) }
  const fields = changedFields(command, { name: 'coordinateCommitTransaction', value: 1, add })
  return await send(command, hosts[0] as string, fields)
}
