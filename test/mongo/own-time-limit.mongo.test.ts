import type { Document } from 'mongodb'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { AuditCluster } from '../../src/comparison/audit-cluster.ts'
import { readChangeStream } from '../../src/mongo/change-stream.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * `defaultMaxTimeMS` of 8.0 limits every read without a `maxTimeMS`. Servers of 6.0 do not have this parameter, so the tests
 * read from the profiler which `maxTimeMS` the server has received.
 */

const one = oneSet()
const app = () => one.client.db('app')

beforeEach(async () => {
  await app()
    .collection<{ _id: number }>('things')
    .insertMany([{ _id: 1 }, { _id: 2 }])
  await app().command({ profile: 2 })
})
afterEach(async () => {
  await app().command({ profile: 0 })
  await app().dropDatabase()
})

/** Returns the commands with this name that the server has received from this application. */
const received = async (command: string, appName = 'tandem-test'): Promise<Document[]> =>
  (
    await app()
      .collection('system.profile')
      .find({ appName, [`command.${command}`]: { $exists: true } })
      .toArray()
  ).map((entry) => entry['command'])

it.each<[name: string, rest: Document]>([
  ['find', { filter: {} }],
  ['aggregate', { pipeline: [], cursor: {} }],
  ['count', {}],
  ['distinct', { key: '_id' }],
])('%s sends an explicit time limit: that of the caller, or 0 (no limit)', async (name, rest) => {
  await one.cluster.read('app', { [name]: 'things', ...rest })
  await one.cluster.read('app', { [name]: 'things', ...rest, maxTimeMS: 5_000 })
  const limits = (await received(name)).map(({ maxTimeMS }) => maxTimeMS)
  expect(limits).toEqual([0, 5_000])
})

it('a getMore has no maxTimeMS, because in a getMore that field means the time to await new documents', async () => {
  await RawCursor.readAll(one.cluster, 'app', { find: 'things', batchSize: 1 })
  const [found, ...others] = await received('getMore')
  expect([found?.['maxTimeMS'], others]).toEqual([undefined, []])
})

it('a change stream is opened without a limit', async () => {
  await appendOplogNote(one.cluster, 'test')
  const from = { kind: 'time', time: one.cluster.latest } as const
  for await (const _ of readChangeStream(one.cluster, from, testContext())) {
    const operations = one.client
      .db('admin')
      .aggregate([
        { $currentOp: { idleCursors: true } },
        { $match: { 'cursor.originatingCommand.pipeline.$changeStream': { $exists: true } } },
      ])
    const opened = (await operations.toArray()).map(({ cursor }) => cursor.originatingCommand)
    expect(opened.map(({ maxTimeMS }) => maxTimeMS)).toEqual([0])
    break
  }
})

it('tandem verify reads documents without a limit', async () => {
  const cluster = new AuditCluster('cluster0', one.set.uri)
  try {
    for (const by of [{ by: '_id', simple: false }, { by: '_id', simple: true }, { by: 'natural' }] as const) {
      const { stream, close } = cluster.stream('app', 'things', by)
      await stream.fill()
      await close()
    }
    await cluster.documentsById('app', 'things', [1], false)
  } finally {
    await cluster.close()
  }
  const finds = await received('find', 'tandem verify')
  expect(finds.map(({ maxTimeMS }) => maxTimeMS)).toEqual([0, 0, 0, 0])
})
