import type { Document } from 'mongodb'
import { assert } from '../domain/errors.ts'
import { bsonType } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'

/**
 * Documents of this size (bytes) or larger are not hashed. The key string of a document can be twice as large as the
 * document, because null bytes in strings are escaped, and the server refuses values of more than 16 MB.
 */
export const hashedBytesMax = 4 * 1024 * 1024

/**
 * `$toHashedIndexKey` alone converts each number to a 64-bit integer: 2.5 and 2.7 have the same hash, and so have all
 * numbers above 2^63. The server's key string of the document keeps the value of each number, so the key string is
 * hashed, as in MongoDB's migration-verifier. The operator `$_internalKeyStringValue` is not documented. `sampleHash`
 * shows whether a server has the operator.
 */
const hash: Document = { $toHashedIndexKey: { $_internalKeyStringValue: { input: '$$ROOT' } } }
const size: Document = { $bsonSize: '$$ROOT' }

/**
 * The projection of a read of hashes. For each document it returns `_id`, the hash `h` (null if the document is too
 * large), and the size `s` in bytes.
 */
export const hashProjection: Document = {
  _id: 1,
  h: { $cond: [{ $lt: [size, hashedBytesMax] }, hash, null] },
  s: size,
}

/** Number of bytes after the value of `s`, the last field of a returned document. */
const endBytes = 1
const sizeBytes = 4
const sizeName = Buffer.from([bsonType.int32, ...Buffer.from('s\0')])

/**
 * Returns the size (bytes) of a document on the server.
 * @param projected what the server has returned for the document and `hashProjection`
 */
export function sizeOfHashed(projected: Buffer): number {
  const at = projected.length - endBytes - sizeBytes
  assert(
    sizeName.equals(projected.subarray(at - sizeName.length, at)),
    'a document of a hashed read ends with its size',
  )
  return projected.readInt32LE(at)
}

/** A number with a fraction, so that the hash shows whether a server keeps fractions. */
const sample = { a: 2.5, b: ['x', { c: null }] }

/**
 * Returns the server's hash of a sample document, as text. Rejects with the server's error if the server cannot compute
 * the hash. The command needs no collection and no privilege, because `$documents` provides the document.
 */
export async function sampleHash(cluster: Cluster): Promise<string | null> {
  const command = { aggregate: 1, pipeline: [{ $documents: [sample] }, { $project: { _id: 0, h: hash } }], cursor: {} }
  const reply = await cluster.read('admin', command)
  const [found] = reply['cursor'].firstBatch as { h: unknown }[]
  return found ? String(found.h) : null
}
