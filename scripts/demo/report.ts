import { MongoClient } from 'mongodb'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Comparison } from '../../test/support/compare.ts'
import { describeCluster } from './describe-cluster.ts'
import { count, green, megabytes, print, red, seconds, table } from './screen.ts'
import type { WriterCounts } from './writer.ts'

/** Durations in milliseconds. */
export interface Timings {
  copy: number
  restart: number
  cutover: number
  commit: number
  compare: number
  all: number
}

export async function showCollections(uri: string): Promise<void> {
  const facts = await describeCluster(uri)
  const rows = facts.map(({ namespace, documents, bytes, indexes, features }) => [
    namespace,
    documents === null ? '' : count(documents),
    bytes === null ? '' : megabytes(bytes),
    [...features, ...(indexes.length > 0 ? [`indexes: ${indexes.join(', ')}`] : [])].join('; '),
  ])
  table([['collection', 'documents', 'bytes', ''], ...rows], [1, 2])
}

/** Returns the bytes of documents that are copied according to tandem's metadata. A restart does not copy them again. */
export async function storedCopyBytes(destinationUri: string): Promise<number> {
  await using client = new MongoClient(destinationUri)
  const segments = client.db(metadataDatabase).collection('segments')
  const [sum] = await segments.aggregate([{ $group: { _id: null, bytes: { $sum: '$bytes' } } }]).toArray()
  return Number(sum?.['bytes'] ?? 0)
}

export async function showSummary(
  destinationUri: string,
  facts: { comparison: Comparison; written: WriterCounts; events: number; timings: Timings },
): Promise<void> {
  const { comparison, written, events, timings } = facts
  const described = await describeCluster(destinationUri)
  const indexes = described.reduce((sum, one) => sum + one.indexes.length, 0)
  table([
    ['collections and views', count(comparison.collections)],
    ['secondary indexes', count(indexes)],
    ['documents', count(comparison.documents)],
    ['bytes', megabytes(comparison.bytes)],
    [
      'written during the sync',
      `${count(written.inserts)} inserts, ${count(written.updates)} updates, ${count(written.deletes)} deletes,`,
    ],
    ['', `${count(written.transactions)} transactions, ${count(written.definitions)} changes of definitions`],
    ['events applied', `about ${count(events)}`],
    ['copy', `${seconds(timings.copy)}, including the kill`],
    ['restart after the kill', seconds(timings.restart)],
    ['cutover', `${seconds(timings.cutover)} from commit to canWrite`],
    ['commit', `${seconds(timings.commit)} from commit to COMMITTED`],
    ['comparison', seconds(timings.compare)],
    ['total', seconds(timings.all)],
  ])
  print()
  table([
    comparison.equal
      ? ['result', green('EQUAL: both clusters hold the same bytes, options and indexes')]
      : ['result', red(`NOT EQUAL: ${comparison.differences.length} differences`)],
  ])
  print()
}
