import { once } from 'node:events'
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { MongoNetworkError, MongoOperationTimeoutError, ObjectId } from 'mongodb'
import { bsonType, type TypedValue } from '../domain/raw-bson.ts'

/**
 * Sends bytes that the driver did not encode itself. The driver has no public way to do that, so this file relies on
 * its internals. The driver's version is pinned exactly; test/mongo/raw-values.mongo.test.ts fails when an upgrade
 * changes what this file relies on.
 */
type MakeSections = (this: object, buffers: Uint8Array[], document: Record<string, unknown>) => number
const require = createRequire(import.meta.url)
type ToBin = (this: { command: { command?: Record<string, unknown> } }) => Promise<Uint8Array[]>
const { OpMsgRequest, OpCompressedRequest } = require('mongodb/lib/cmap/commands.js') as {
  OpMsgRequest: { prototype: { makeSections: MakeSections } }
  OpCompressedRequest: { prototype: { toBin: ToBin } }
}

interface DriverConnection {
  socket: Socket
  onError: (error: Error) => void
}
type WriteCommand = (
  this: DriverConnection,
  command: { toBin: () => Uint8Array[] },
  options: { agreedCompressor?: string; signal?: AbortSignal },
) => Promise<void>
const { Connection } = require('mongodb/lib/cmap/connection.js') as {
  Connection: { prototype: { writeCommand: WriteCommand } }
}

/**
 * A kind-1 section of OP_MSG: the documents follow the body of the command verbatim
 * (https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/#kind-1--document-sequence).
 */
class RawSequence {
  readonly parts: Buffer[]
  readonly length: number
  constructor(field: string, documents: Buffer[], from: number, to: number) {
    const header: Buffer = Buffer.alloc(1 + 4 + field.length + 1)
    header[0] = 1
    header.write(field, 5, 'latin1')
    let length = header.length
    const parts = [header]
    for (let at = from; at < to; at++) {
      const document = documents[at] as Buffer
      parts.push(document)
      length += document.length
    }
    header.writeInt32LE(length - 1, 1)
    this.parts = parts
    this.length = length
  }
}

/**
 * The driver assembles its own document sequences and then concatenates them twice. A RawSequence is passed on as
 * separate pieces and copied into the message once, or not at all. Commands without a RawSequence are not affected.
 */
const makeSections = OpMsgRequest.prototype.makeSections
OpMsgRequest.prototype.makeSections = function (this: object, buffers, document) {
  for (const [field, value] of Object.entries(document)) {
    if (!(value instanceof RawSequence)) continue
    delete document[field]
    const length = makeSections.call(this, buffers, document)
    for (const part of value.parts) buffers.push(part)
    if (value.length >= value.parts.length * pieceBytesMin) sentInPieces.add(this)
    return length + value.length
  }
  return makeSections.call(this, buffers, document)
}

/**
 * Messages whose pieces average at least this many bytes are written to the socket piece by piece (`writev`), others as
 * one concatenated message. Each piece has a small cost; a concatenated message of megabytes costs memory, and one V8
 * garbage collection per 64 MB.
 */
const pieceBytesMin = 4_096
const sentInPieces = new WeakSet<object>()

/**
 * Writes the messages in `sentInPieces` piece by piece, and passes all others to the driver's method. After an error it
 * closes the connection and throws the same error as that method.
 */
const { writeCommand } = Connection.prototype
Connection.prototype.writeCommand = async function (this: DriverConnection, command, options) {
  if (options.agreedCompressor !== 'none') return await writeCommand.call(this, command, options)
  const pieces = command.toBin()
  if (!sentInPieces.has(command)) return await writeCommand.call(this, { toBin: () => pieces }, options)
  const { socket } = this
  let isBufferFree = true
  socket.cork()
  try {
    for (const piece of pieces) isBufferFree = socket.write(piece)
  } catch (cause) {
    const failure = new MongoNetworkError('unexpected error writing to socket', { cause: cause as Error })
    this.onError(failure)
    throw failure
  } finally {
    socket.uncork()
  }
  if (isBufferFree) return
  await once(socket, 'drain', options.signal ? { signal: options.signal } : {}).catch((error) => {
    const failure = options.signal?.aborted ? new MongoOperationTimeoutError('Timed out at socket write') : error
    this.onError(failure)
    throw failure
  })
}

/**
 * With `compressors`, the driver serializes the command, compresses it on another thread, and then writes the message.
 * The process may be suspended in between, so `check` of a CheckedText is called again after the compression.
 */
const { toBin } = OpCompressedRequest.prototype
OpCompressedRequest.prototype.toBin = async function (this) {
  const pieces = await toBin.call(this)
  const comment = this.command.command?.['comment']
  if (comment instanceof CheckedText) comment.check()
  return pieces
}

/** Returns the documents [from, to) as the given field of a write command. */
export function rawSequence(
  field: 'documents' | 'updates' | 'deletes',
  documents: Buffer[],
  from = 0,
  to = documents.length,
): object {
  return new RawSequence(field, documents, from, to)
}

/** Returns the number of statements in a write command, whose statements are bytes or documents. */
export function statementCount(statements: unknown): number {
  return statements instanceof RawSequence ? statements.parts.length - 1 : (statements as unknown[]).length
}

const someObjectId = new ObjectId('000000000000000000000000')

/**
 * A value of any BSON type inside a command document, sent as the bytes that were read. js-bson lets an ObjectId write
 * itself (`serializeInto(buffer, index)`) right after the type byte and the element's name. This class writes its own
 * bytes, and overwrites the type byte before the name.
 */
export class RawValue extends ObjectId {
  readonly #typed: TypedValue
  constructor(typed: TypedValue) {
    super(someObjectId)
    this.#typed = typed
  }
  /** @internal called by js-bson */
  serializeInto(target: Uint8Array, index: number): number {
    // js-bson has written the type byte before the name, which ends at index - 2. Raw values are only placed under
    // names that tandem chooses (command fields, array indexes), and none of these contains the byte 0x07.
    let typeAt = index - 2
    while (target[typeAt] !== objectIdType) typeAt--
    target[typeAt] = this.#typed[0] as number
    target.set(this.#typed.subarray(1), index)
    return this.#typed.length - 1
  }
}

/**
 * The comment of a command. It calls `check` when the driver serializes the command. By then the driver has selected a
 * server and a connection, which may take seconds. If `check` throws, the command fails with that error and nothing is
 * sent.
 */
export class CheckedText extends RawValue {
  readonly check: () => void
  constructor(text: string, check: () => void) {
    const bytes = Buffer.from(`${text}\0`, 'utf8')
    const typed = Buffer.alloc(5 + bytes.length)
    typed[0] = bsonType.string
    typed.writeInt32LE(bytes.length, 1)
    bytes.copy(typed, 5)
    super(typed)
    this.check = check
  }
  /** @internal called by js-bson */
  override serializeInto(target: Uint8Array, index: number): number {
    this.check()
    return super.serializeInto(target, index)
  }
}
const objectIdType = 0x07
