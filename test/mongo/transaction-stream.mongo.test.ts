import { expect, it } from 'vitest'
import { parseChangeEvent } from '../../src/domain/change-event.ts'
import { readChangeStream, type StreamBatch, type StreamPosition } from '../../src/mongo/change-stream.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** All events of a transaction have the same time. Only the token says which of these events a reader has read. */

const one = oneSet()
const count = 7_000

async function now(): Promise<bigint> {
  await appendOplogNote(one.cluster, 'test')
  return one.cluster.latest
}

/** Reads batches from a position until the stream has passed `end`. */
async function batches(from: StreamPosition, end: bigint): Promise<StreamBatch[]> {
  const read: StreamBatch[] = []
  for await (const batch of readChangeStream(one.cluster, from, testContext(), { awaitMS: () => 20 })) {
    read.push(batch)
    if (batch.position.time >= end) return read
  }
  return read
}

const insertsOf = (read: StreamBatch[]) =>
  read.flatMap(({ events }) => events.map(parseChangeEvent)).filter(({ kind }) => kind === 'insert')

it('a reader that ended in the middle of a transaction continues at that event and misses none', async () => {
  await one.client.db('app').createCollection('c')
  const start: StreamPosition = { kind: 'time', time: (await now()) + 1n }
  const session = one.client.startSession()
  await session.withTransaction(async () => {
    const documents = Array.from({ length: count }, (_, n) => ({ n }))
    await one.client.db('app').collection('c').insertMany(documents, { session })
  })
  await session.endSession()
  const end = await now()
  const whole = await batches(start, end)
  const inserts = insertsOf(whole)
  expect(inserts).toHaveLength(count)
  const time = inserts[0]?.time
  expect(new Set(inserts.map((event) => event.time))).toEqual(new Set([time]))
  const within = whole.find(({ events, position }) => events.length > 0 && position.time === time)
  const before = insertsOf(whole.slice(0, whole.indexOf(within as StreamBatch) + 1)).length
  expect(before).toBeGreaterThan(0)
  expect(before).toBeLessThan(count)
  expect(insertsOf(await batches((within as StreamBatch).position, end))).toHaveLength(count - before)
})
