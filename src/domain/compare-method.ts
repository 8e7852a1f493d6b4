/**
 * How the verifier's first pass compares documents. `binary`: as bytes. `toHashedIndexKey`: both clusters compute a hash
 * and the size of each document, and tandem reads only these. Everything after the first pass compares bytes, whatever
 * the method is. The names are those of migration-verifier's `--docCompareMethod`.
 */
export const initialCompareMethods = ['binary', 'toHashedIndexKey'] as const
export type InitialCompareMethod = (typeof initialCompareMethods)[number]

interface Compared {
  verification: { enabled: boolean; initialCompareMethod: InitialCompareMethod }
}

/** True if the first pass compares hashes. */
export function comparesHashes({ verification }: Compared): boolean {
  return verification.enabled && verification.initialCompareMethod === 'toHashedIndexKey'
}

/** What equal hashes and sizes do not prove. `test/verify/document-hash.mongo.test.ts` shows each case on a server. */
export const notProvenByHashes =
  'equal hashes and equal sizes do not prove equal types of numbers (5 as a long or as a double), nor the sign of zero, ' +
  'the number of digits of a decimal (1 or 1.0), the payload of NaN, the names of the elements of an array, or whether a text ' +
  'is a string or a symbol, and a 64-bit hash can be equal by chance'

/** The warning of a sync whose first pass compares hashes. */
export function warningsOfMethod(configuration: Compared): string[] {
  if (!comparesHashes(configuration)) return []
  return [
    'the first verification compares hashes of documents, not their bytes (verification.initialCompareMethod is toHashedIndexKey): ' +
      `${notProvenByHashes}. Documents that change after it are compared as bytes`,
  ]
}
