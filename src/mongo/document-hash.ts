import type { Document } from 'mongodb'
import { assert } from '../domain/errors.ts'
import { bsonType } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'

/**
 * Larger documents are not hashed. The key string of a document can be twice as large as the document, because a string's
 * null bytes are escaped, and the server refuses values of more than 16 MB.
 */
export const hashedBytesMax = 4 * 1024 * 1024

/**
 * `$toHashedIndexKey` alone converts each number to a 64-bit integer: 2.5 and 2.7 have the same hash, and so have all
 * numbers above 2^63. The server's key string of the document keeps the value of each number, so the key string is hashed,
 * as MongoDB's migration-verifier does it. The operator `$_internalKeyStringValue` is not documented. `sampleHash`
 * asks a server whether it has the operator.
 */
const hash: Document = { $toHashedIndexKey: { $_internalKeyStringValue: { input: '$$ROOT' } } }
const size: Document = { $bsonSize: '$$ROOT' }

/** What a read of hashes returns of each document besides `_id`: the hash, or null if it is too large, and its size. */
export const hashProjection: Document = {
  _id: 1,
  h: { $cond: [{ $lt: [size, hashedBytesMax] }, hash, null] },
  s: size,
}

/** The bytes of a reply that follow the value of `s`: the end of the document. */
const endBytes = 1
const sizeBytes = 4
const sizeName = Buffer.from([bsonType.int32, ...Buffer.from('s\0')])

/** Returns the size of a document, of which the server has returned `hashProjection`. */
export function sizeOfHashed(reply: Buffer): number {
  const at = reply.length - endBytes - sizeBytes
  assert(sizeName.equals(reply.subarray(at - sizeName.length, at)), 'the reply of a hashed read ends with the size')
  return reply.readInt32LE(at)
}

/** A number with a fraction, so that the hash shows whether a server keeps fractions. */
const sample = { a: 2.5, b: ['x', { c: null }] }

/**
 * Returns the server's hash of a sample document, as text. Rejects with the server's error if the server cannot compute
 * it. `$documents` needs no collection and no privilege.
 */
export async function sampleHash(cluster: Cluster): Promise<string | null> {
  const command = { aggregate: 1, pipeline: [{ $documents: [sample] }, { $project: { _id: 0, h: hash } }], cursor: {} }
  const reply = await cluster.read('admin', command)
  const [found] = reply['cursor'].firstBatch as { h: unknown }[]
  return found ? String(found.h) : null
}
