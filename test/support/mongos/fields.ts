import { BSON, type Document } from 'mongodb'
import { nameOf, spans } from '../../../src/domain/raw-bson.ts'

/**
 * Commands and replies as lists of fields whose values stay bytes: what the stand-in does not understand passes through
 * it unchanged, and a batch of documents is never decoded.
 */
export interface Field {
  name: string
  /** BSON's type byte. */
  type: number
  /** A view of the message that it was read from. */
  value: Buffer
}

export function readFields(document: Buffer): Field[] {
  const fields: Field[] = []
  for (const span of spans(document)) {
    const value = document.subarray(span.valueStart, span.valueEnd)
    fields.push({ name: nameOf(document, span), type: span.type, value })
  }
  return fields
}

export function buildDocument(fields: Field[]): Buffer {
  const length = fields.reduce((sum, { name, value }) => sum + 2 + Buffer.byteLength(name) + value.length, 5)
  const document = Buffer.allocUnsafe(length)
  document.writeInt32LE(length, 0)
  let position = 4
  for (const { name, type, value } of fields) {
    document[position++] = type
    position += document.write(name, position)
    document[position++] = 0
    position += value.copy(document, position)
  }
  document[position] = 0
  return document
}

/** An array field of documents given as bytes. */
export function arrayField(name: string, documents: Buffer[]): Field {
  const elements = documents.map((value, index) => ({ name: String(index), type: 0x03, value }))
  return { name, type: 0x04, value: buildDocument(elements) }
}

export function documentField(name: string, fields: Field[]): Field {
  return { name, type: 0x03, value: buildDocument(fields) }
}

export function encode(document: Document): Buffer {
  return Buffer.from(BSON.serialize(document, { ignoreUndefined: true }))
}

/** Fields of a document of JavaScript values; those that are undefined are left out. */
export function fieldsOf(document: Document): Field[] {
  return readFields(encode(document))
}

export function fieldNamed(fields: Field[], name: string): Field | undefined {
  return fields.find((field) => field.name === name)
}

/** Numbers become JavaScript's: to look at, not to send on. */
export function decode(document: Buffer): Document {
  return BSON.deserialize(document)
}

/** Values keep their BSON types, to be sent on. */
export function decodeExactly(document: Buffer): Document {
  return BSON.deserialize(document, { promoteValues: false, bsonRegExp: true })
}

/** Undefined where there is no such field. */
export function decodedValue(field: Field | undefined): unknown {
  return field && decode(buildDocument([field]))[field.name]
}

export function exactValue(field: Field | undefined): unknown {
  return field && decodeExactly(buildDocument([field]))[field.name]
}
