import type { Document } from 'mongodb'
import { Long, MongoServerError, type UUID } from 'mongodb'
import { findSpan } from '../../src/domain/raw-bson.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'

/** Encoding and decoding of commands and replies. */

export function finished(firstBatch: unknown[], ns: string): Document {
  return { cursor: { id: Long.ZERO, ns, firstBatch } }
}

export function serverError(code: number, errmsg: string): MongoServerError {
  return new MongoServerError({ ok: 0, code, errmsg, message: errmsg })
}

export function spanOf(statement: Buffer, name: string): Buffer {
  const span = findSpan(statement, name)
  if (!span) throw new Error(`the statement has no field ${name}`)
  return statement.subarray(span.valueStart, span.valueEnd)
}

/** Returns the `_id` of a document, or of a filter that selects a document by `_id`. */
export function int32At(bytes: Buffer): number {
  return bytes.readInt32LE(9)
}

const scratch = Buffer.alloc(64)

export function int32Of(value: { serializeInto: (target: Uint8Array, at: number) => number }): number {
  scratch.set([7, 0x30, 0])
  value.serializeInto(scratch, 3)
  return scratch[0] === 0x10 ? scratch.readInt32LE(3) : Number.NaN
}

/** Returns the number of the collection whose UUID the command contains. */
export function numberOf(command: Document): number {
  const uuid = fromUuid(command['collectionUUID'] as UUID)
  return Buffer.from(uuid, 'latin1').readUInt32LE(0) - 1
}
