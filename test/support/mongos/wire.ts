/**
 * The part of MongoDB's wire protocol that servers and drivers since 4.0 use:
 * https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
 */

const opReply = 1
/** Drivers use it only for the first hello of a connection. */
export const opQuery = 2004
const opMessage = 2013

export const flag = { checksumPresent: 1, moreToCome: 2 }

const headerLength = 16

/** A section of kind 1, which contains the documents of one field of the command outside of its body. */
export interface DocumentSequence {
  id: string
  data: Buffer
}

export interface Message {
  requestId: number
  opCode: number
  flags: number
  body: Buffer
  sequences: DocumentSequence[]
}

let lastRequestId = 0

export function encodeMessage(body: Buffer, sequences: DocumentSequence[] = [], responseTo = 0): Buffer {
  const parts = [Buffer.alloc(headerLength + 5), body]
  for (const { id, data } of sequences) {
    const head = Buffer.alloc(5 + id.length + 1)
    head[0] = 1
    head.writeInt32LE(4 + id.length + 1 + data.length, 1)
    head.write(id, 5)
    parts.push(head, data)
  }
  const message = Buffer.concat(parts)
  lastRequestId = (lastRequestId + 1) & 0x7fffffff
  writeHeader(message, responseTo, opMessage)
  return message
}

/** Encodes the answer to an OP_QUERY. */
export function encodeReply(body: Buffer, responseTo: number): Buffer {
  const awaitCapable = 8
  const head = Buffer.alloc(headerLength + 20)
  head.writeInt32LE(awaitCapable, headerLength)
  head.writeInt32LE(1, headerLength + 16) // one document
  const message = Buffer.concat([head, body])
  writeHeader(message, responseTo, opReply)
  return message
}

function writeHeader(message: Buffer, responseTo: number, opCode: number): void {
  message.writeInt32LE(message.length, 0)
  message.writeInt32LE(lastRequestId, 4)
  message.writeInt32LE(responseTo, 8)
  message.writeInt32LE(opCode, 12)
}

export function parseMessage(bytes: Buffer): Message {
  const requestId = bytes.readInt32LE(4)
  const opCode = bytes.readInt32LE(12)
  if (opCode === opQuery) {
    // The message contains flags, the collection's name, the numbers of documents to skip and to return, and the query.
    const start = bytes.indexOf(0, headerLength + 4) + 1 + 8
    return { requestId, opCode, flags: 0, body: documentAt(bytes, start), sequences: [] }
  }
  if (opCode !== opMessage) throw new Error(`the mongos stand-in does not support opcode ${opCode}`)
  const flags = bytes.readUInt32LE(headerLength)
  const end = bytes.length - (flags & flag.checksumPresent ? 4 : 0)
  const message: Message = { requestId, opCode, flags, body: Buffer.alloc(0), sequences: [] }
  let position = headerLength + 4
  while (position < end) {
    const kind = bytes[position]
    const start = position + 1
    const section = documentAt(bytes, start) // Both kinds begin with their length.
    if (kind === 0) {
      message.body = section
    } else {
      const idEnd = section.indexOf(0, 4)
      message.sequences.push({ id: section.toString('utf8', 4, idEnd), data: section.subarray(idEnd + 1) })
    }
    position = start + section.length
  }
  return message
}

export function documentAt(bytes: Buffer, start: number): Buffer {
  return bytes.subarray(start, start + bytes.readInt32LE(start))
}

export function* documentsOf(sequence: DocumentSequence): Generator<Buffer> {
  for (let position = 0; position < sequence.data.length; ) {
    const document = documentAt(sequence.data, position)
    yield document
    position += document.length
  }
}

/** Splits a connection's bytes into messages. Chunks of a large message are joined once, after all of them have arrived. */
export function messageReader(deliver: (message: Buffer) => void): (chunk: Buffer) => void {
  let chunks: Buffer[] = []
  let receivedBytes = 0
  let needed = 4
  return (chunk) => {
    chunks.push(chunk)
    receivedBytes += chunk.length
    if (receivedBytes < needed) return
    let bytes = chunks.length === 1 ? chunk : Buffer.concat(chunks)
    for (;;) {
      needed = bytes.length < 4 ? 4 : bytes.readInt32LE(0)
      if (bytes.length < needed) break
      deliver(bytes.subarray(0, needed))
      bytes = bytes.subarray(needed)
    }
    chunks = bytes.length > 0 ? [bytes] : []
    receivedBytes = bytes.length
  }
}
