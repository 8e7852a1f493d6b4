import { MongoClient } from 'mongodb'
import { metadataDatabase } from '../../src/domain/namespace.ts'

/** For each segment: whether it is stored as done, and how often a cursor was opened for it. */
export type SegmentCounts = Map<string, { done: boolean; attempts: number }>

export async function countSegments(destinationUri: string): Promise<SegmentCounts> {
  await using client = await MongoClient.connect(destinationUri)
  const segments = await client
    .db(metadataDatabase)
    .collection<{ _id: string; done: boolean; attempts: number }>('segments')
    .find({}, { readConcern: 'majority' })
    .toArray()
  return new Map(segments.map(({ _id, done, attempts }) => [_id, { done, attempts }]))
}
