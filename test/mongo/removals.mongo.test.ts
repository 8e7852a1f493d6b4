import type { Binary } from 'mongodb'
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { toUuid } from '../../src/mongo/uuid.ts'
import { VerificationStore } from '../../src/mongo/verification-store.ts'
import { failPoint } from '../support/fail-point.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * Many documents of the metadata are removed. The server ends each command after 25 seconds, and a command that does not finish
 * in time removes nothing.
 */

const one = oneSet()
const internal = () => one.client.db(metadataDatabase)
let metadata: Metadata
beforeEach(async () => {
  await internal().dropDatabase()
  metadata = new Metadata(one.cluster, testContext(), { term: 1 })
  await metadata.createIndexes()
})

const uuid = (digit: number): string => Buffer.alloc(16, digit).toString('latin1')
const idElement = (id: number): Buffer => {
  const element = Buffer.from('\x10_id\0____', 'latin1')
  element.writeInt32LE(id, 5)
  return element
}
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const perCommandMax = 500

/** Returns an array that receives, for each delete command sent from now on, the number of removed documents. */
function removedByCommands(): number[] {
  const removed: number[] = []
  const write = one.cluster.write.bind(one.cluster)
  const spied = vi.spyOn(one.cluster, 'write').mockImplementation(async (database, command, options) => {
    const reply = await write(database, command, options)
    if (command['delete']) removed.push(reply['n'] as number)
    return reply
  })
  onTestFinished(() => spied.mockRestore())
  return removed
}

async function recordTombstones(digit: number, count: number): Promise<void> {
  await metadata.tombstones.add(
    uuid(digit),
    numbers(count).map((id) => ({ idElement: idElement(id), order: id, reorder: false })),
  )
}

it('tombstones of a collection are removed by commands of limited size', async () => {
  await recordTombstones(1, 5_000)
  await recordTombstones(2, 3)
  const removed = removedByCommands()
  await metadata.tombstones.remove([{ uuid: uuid(1), convergedFrom: null }])
  expect(Math.max(...removed)).toBeLessThanOrEqual(perCommandMax)
  expect(await metadata.tombstones.recorded([uuid(1), uuid(2)])).toEqual(new Set([uuid(2)]))
})

it('a removal that was stopped, or whose connection was cut, continues with the remaining documents', async () => {
  await recordTombstones(1, 2_000)
  const stopping = new AbortController()
  const removed = removedByCommands()
  const deletes = vi.spyOn(removed, 'push').mockImplementation((...counts) => {
    stopping.abort()
    return counts.length
  })
  const stopped = metadata.tombstones.remove([{ uuid: uuid(1), convergedFrom: null }], stopping.signal)
  await expect(stopped).rejects.toMatchObject({ name: 'StoppedError' })
  deletes.mockRestore()
  expect(await internal().collection('tombstones').countDocuments()).toBe(1_500)
  const cut = { failCommands: ['getMore'], closeConnection: true, appName: 'tandem-test' }
  await using _ = await failPoint(one.client, 'failCommand', cut, { times: 1 })
  await metadata.tombstones.remove([{ uuid: uuid(1), convergedFrom: null }])
  expect(await internal().collection('tombstones').countDocuments()).toBe(0)
})

it('a delayed removal of a recheck leaves the recheck of the same document that was stored later', async () => {
  const store = new VerificationStore(one.cluster, testContext())
  const recheck = { uuid: uuid(1), idElement: idElement(1), onSource: false, onDestination: true }
  const stored = () => store.readRechecks(null, 10)
  await store.saveRechecks([{ ...recheck, token: 'first' }])
  const delayed = await stored()
  await store.removeRechecks(delayed)
  await store.saveRechecks([{ ...recheck, token: 'second' }])
  await store.removeRechecks(delayed)
  expect(await stored()).toEqual([{ ...recheck, token: 'second' }])
  await store.removeRechecks(await stored())
  expect(await stored()).toEqual([])
  // An earlier release stored rechecks without a token.
  await store.saveRechecks([{ ...recheck, token: 'without' }])
  await internal()
    .collection('rechecks')
    .updateMany({}, { $unset: { token: '' } })
  await store.removeRechecks(await stored())
  expect(await stored()).toEqual([])
})

it('a removal that is continued when the copy begins is stopped when the copy is stopped', async () => {
  await recordTombstones(1, 2_000)
  const collections = internal().collection<{ _id: Binary }>('collections')
  const ended = { schemaVersion: 3, state: 'copying', endedPartitions: [0, 1], totalCopied: null, convergedFrom: null }
  await collections.insertOne({ _id: toUuid(uuid(1)), ...ended } as never)
  const stopping = new AbortController()
  const deletes = vi.spyOn(removedByCommands(), 'push').mockImplementation((...counts) => {
    stopping.abort()
    return counts.length
  })
  await expect(metadata.collections.copying(2, stopping.signal)).rejects.toMatchObject({ name: 'StoppedError' })
  deletes.mockRestore()
  expect(await internal().collection('tombstones').countDocuments()).toBe(1_500)
})

it('the highest order of tombstones is found without a read of each tombstone', async () => {
  expect(await metadata.tombstones.highestOrder()).toBe(0)
  for (const [digit, count] of [
    [1, 1_000],
    [2, 1_500],
    [3, 700],
  ] as const)
    await recordTombstones(digit, count)
  await internal().command({ profile: 2 })
  onTestFinished(async () => void (await internal().command({ profile: 0 })))
  expect(await metadata.tombstones.highestOrder()).toBe(1_499)
  await internal().command({ profile: 0 })
  const [read] = await internal()
    .collection('system.profile')
    .find({ ns: `${metadataDatabase}.tombstones` })
    .sort({ ts: -1 })
    .toArray()
  expect(read).toMatchObject({ nreturned: expect.any(Number) })
  expect(read?.['keysExamined']).toBeLessThan(10)
  expect(read?.['docsExamined']).toBeLessThan(10)
})

it('the rechecks, the compared ranges and the segments are removed by commands of limited size', async () => {
  const store = new VerificationStore(one.cluster, testContext())
  const rechecks = numbers(2_000).map((id) => ({ uuid: uuid(1), idElement: idElement(id) }))
  await store.saveRechecks(
    rechecks.map((recheck) => ({ ...recheck, onSource: true, onDestination: false, token: null })),
  )
  const range = { source: 1, destination: 1, bytes: 10 }
  const rangesOf = (digit: number) => numbers(1_000).map((ordinal) => ({ ...range, collection: uuid(digit), ordinal }))
  await store.saveRanges([...rangesOf(1), ...rangesOf(2), ...rangesOf(3)])
  const segment = { from: null, to: null, last: null, done: false, documents: 0, bytes: 0, attempts: 0, claim: 0 }
  const own = { collection: uuid(1), priority: 0, natural: null, wasOwn: false }
  await metadata.segments.plan(numbers(2_000).map((ordinal) => ({ ...segment, ...own, ordinal })))
  const removed = removedByCommands()
  await store.removeRanges([uuid(1), uuid(2)])
  expect(new Set((await store.loadRanges()).map(({ collection }) => collection))).toEqual(new Set([uuid(3)]))
  await store.clearComparisons()
  await metadata.segments.remove([uuid(1)])
  expect(Math.max(...removed)).toBeLessThanOrEqual(perCommandMax)
  for (const collection of ['rechecks', 'verifiedRanges', 'segments'])
    expect(await internal().collection(collection).countDocuments()).toBe(0)
})

it('all documents of a collection are removed, also if their _ids have different types', async () => {
  await metadata.savePosition('reverse', 1, { kind: 'time', time: clusterTime(1, 1) })
  await metadata.beginPartitions(16, { kind: 'time', time: clusterTime(1, 1) })
  await internal()
    .collection<{ _id: number }>('barriers')
    .insertMany(numbers(1_200).map((_id) => ({ _id })))
  await metadata.clear()
  expect(await internal().collection('positions').countDocuments()).toBe(0)
  expect(await internal().collection('barriers').countDocuments()).toBe(0)
})
