import { BSON, type Document } from 'mongodb'
import { nameOf, spans } from '../../../src/domain/raw-bson.ts'

/**
 * A field of a command or reply. Values stay bytes, so the stand-in forwards fields that it does not interpret unchanged and
 * never decodes a batch of documents.
 */
export interface Field {
  name: string
  /** The BSON type byte. */
  type: number
  /** The value's bytes, a view of the message that contains them. */
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

/** Returns an array field of documents, which are given as bytes. */
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

/** Returns the fields of a document of JavaScript values without those that are undefined. */
export function fieldsOf(document: Document): Field[] {
  return readFields(encode(document))
}

export function fieldNamed(fields: Field[], name: string): Field | undefined {
  return fields.find((field) => field.name === name)
}

/** Decodes a document with JavaScript numbers, for reading; use `decodeExactly` for forwarding. */
export function decode(document: Buffer): Document {
  return BSON.deserialize(document)
}

/** Decodes a document with exact BSON types, for forwarding. */
export function decodeExactly(document: Buffer): Document {
  return BSON.deserialize(document, { promoteValues: false, bsonRegExp: true })
}

/** Returns the field's value, or undefined for a missing field. */
export function decodedValue(field: Field | undefined): unknown {
  return field && decode(buildDocument([field]))[field.name]
}

export function exactValue(field: Field | undefined): unknown {
  return field && decodeExactly(buildDocument([field]))[field.name]
}
