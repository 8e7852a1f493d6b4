import { beforeEach, describe, expect, it } from 'vitest'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import type { StreamPosition } from '../../src/mongo/change-stream.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** What several instances store of one sync, side by side. */

const one = oneSet()
let metadata: Metadata
/** The coordinator whose term the metadata is written in. */
let coordinator: { term: number }
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
  coordinator = { term: 0 }
  metadata = new Metadata(one.cluster, testContext(), coordinator)
})

const uuid = (digit: number): string => Buffer.alloc(16, digit).toString('latin1')
const at = (seconds: number): StreamPosition => ({
  kind: 'token',
  token: { _data: `82${seconds}` },
  time: clusterTime(seconds, 1),
})

/** Partitions, each owned under this epoch. */
const under = (epoch: number, ...partitions: number[]) => new Map(partitions.map((partition) => [partition, epoch]))

describe('positions of several partitions', () => {
  it('begin together, and only once', async () => {
    await metadata.beginPartitions(3, { kind: 'time', time: clusterTime(5, 1) })
    await metadata.savePositions(new Map([[1, 2]]), at(6))
    await metadata.beginPartitions(3, { kind: 'time', time: clusterTime(9, 1) })
    expect(await metadata.loadPartitions()).toEqual(
      new Map<number, StreamPosition>([
        [0, { kind: 'time', time: clusterTime(5, 1) }],
        [1, at(6)],
        [2, { kind: 'time', time: clusterTime(5, 1) }],
      ]),
    )
  })

  it('are saved each under the epoch of its own ownership', async () => {
    await metadata.beginPartitions(3, at(1))
    await metadata.savePositions(
      new Map([
        [0, 4],
        [1, 1],
      ]),
      at(2),
    )
    await metadata.savePositions(new Map([[1, 3]]), at(3))
    const refused = metadata.savePositions(
      new Map([
        [0, 4],
        [1, 1],
      ]),
      at(9),
    )
    await expect(refused).rejects.toMatchObject({ failure: 'LeaseLost' })
    const positions = await metadata.loadPartitions()
    // Partition 0 is still this owner's, so its position may have moved; partition 1 has passed to another.
    expect(positions.get(1)).toEqual(at(3))
    expect(positions.get(2)).toEqual(at(1))
  })

  it('are apart from those of a reversal', async () => {
    await metadata.beginPartitions(2, at(1))
    await metadata.savePosition('reverse', 1, at(5))
    expect([...(await metadata.loadPartitions()).keys()]).toEqual([0, 1])
    await metadata.removePositions([0, 1])
    expect(await metadata.loadPartitions()).toEqual(new Map())
    expect(await metadata.loadPosition('reverse')).toEqual(at(5))
  })
})

describe('a collection', () => {
  const entry = (digit: number) => ({
    uuid: uuid(digit),
    database: 'app',
    name: `c${digit}`,
    sourceName: `c${digit}`,
    destinationUUID: null,
    state: 'copying' as const,
    wanted: { options: [], indexes: [] },
    estimatedBytes: 10,
    estimatedDocuments: 0,
    refusedIndexes: [],
    copiedBytes: 0,
    totalCopied: null,
    shardKey: null,
    endedPartitions: new Set<number>(),
    planned: true,
    hasTombstones: false,
    converging: false,
  })
  const copied = async () => (await metadata.collections.load()).find((one) => one.uuid === uuid(1))

  it('is copied when every partition has ended it, in whatever order and however often', async () => {
    await metadata.collections.save([entry(1), entry(2)])
    await metadata.tombstones.add(uuid(1), [{ idElement: int(1), order: 1, reorder: false }])
    expect(await metadata.collections.endCopy(uuid(1), under(1, 2, 0), 4)).toBeNull()
    expect(await metadata.collections.endCopy(uuid(1), under(1, 0, 2), 4)).toBeNull()
    expect(await metadata.collections.endCopy(uuid(1), new Map(), 4)).toBeNull()
    expect(await copied()).toMatchObject({ state: 'copying', totalCopied: null, endedPartitions: new Set([2, 0]) })
    expect(await metadata.collections.copying(4)).toEqual([uuid(1), uuid(2)])
    expect(await metadata.tombstones.read(uuid(1), null, 10)).toHaveLength(1)
    expect(await metadata.collections.endCopy(uuid(1), under(1, 1, 3), 4)).toBe(0)
    expect(await copied()).toMatchObject({ state: 'copied', totalCopied: 0 })
    expect(await metadata.collections.copying(4)).toEqual([uuid(2)])
    expect(await metadata.tombstones.read(uuid(1), null, 10)).toEqual([])
    expect(await metadata.collections.endCopy(uuid(1), under(1, 1), 4)).toBe(0)
  })

  it('is copied once when the last partitions end it at the same moment', async () => {
    await metadata.collections.save([entry(1)])
    const answers = await Promise.all(
      [0, 1, 2, 3].map((partition) => metadata.collections.endCopy(uuid(1), under(1, partition), 4)),
    )
    expect(answers).toContain(0)
    expect(await copied()).toMatchObject({ state: 'copied', endedPartitions: new Set([0, 1, 2, 3]) })
  })

  it('is completed by the next look when whoever ended the last partition died in the middle', async () => {
    await metadata.collections.save([entry(1), entry(2)])
    await metadata.tombstones.add(uuid(1), [{ idElement: int(1), order: 1, reorder: false }])
    const beforeItIsCompleted = metadata.collections.endCopy(uuid(1), under(1, 0, 1, 2, 3), 5)
    expect(await beforeItIsCompleted).toBeNull()
    expect(await copied()).toMatchObject({ state: 'copying' })
    expect(await metadata.collections.copying(4)).toEqual([uuid(2)])
    expect(await copied()).toMatchObject({ state: 'copied', totalCopied: 0 })
    expect(await metadata.tombstones.read(uuid(1), null, 10)).toEqual([])
  })

  it('is not ended by a former owner of a partition, whose word comes late', async () => {
    await metadata.collections.save([entry(1), entry(2)])
    await metadata.collections.endCopy(uuid(1), under(3, 1, 2, 3), 4)
    // Partition 0 has passed to another, which records what comes until it ends the copy itself.
    await metadata.collections.claimCopies(under(4, 0))
    await metadata.tombstones.add(uuid(1), [{ idElement: int(1), order: 1, reorder: false }])
    const late = await metadata.collections.endCopy(uuid(1), under(3, 0), 4).catch((error) => error)
    expect(late).toBeInstanceOf(StoppedError)
    expect(await metadata.collections.copying(4)).toEqual([uuid(1), uuid(2)])
    expect(await metadata.tombstones.read(uuid(1), null, 10)).toHaveLength(1)
    expect(await metadata.collections.endCopy(uuid(1), under(4, 0), 4)).toBe(0)
    expect(await metadata.tombstones.read(uuid(1), null, 10)).toEqual([])
  })

  it('is ended by the owner of partitions in a sync that was begun before they had epochs there', async () => {
    await metadata.collections.save([entry(1)])
    const collections = one.client.db('tandem_internal').collection('collections')
    await collections.updateMany({}, { $unset: { epochs: 1 } })
    expect(await metadata.collections.endCopy(uuid(1), under(7, 0, 1), 2)).toBe(0)
  })

  it('whose plan a later coordinator has stored keeps it, whatever comes late of an earlier one', async () => {
    const segments = [segment(1, 0), segment(1, 1)]
    coordinator.term = 5
    await metadata.collections.save([{ ...entry(1), planned: false }])
    await metadata.segments.plan(segments)
    coordinator.term = 4
    await metadata.segments.remove([uuid(1)])
    await metadata.segments.open([uuid(1)])
    await metadata.collections.remove(uuid(1))
    const replaced = metadata.segments.plan([{ ...segment(1, 0), done: true }])
    await expect(replaced).rejects.toMatchObject({ failure: 'LeaseLost' })
    expect((await metadata.segments.load([uuid(1)])).get(uuid(1))).toEqual(segments)
    expect(await metadata.segments.claim('a#1', 1, 8, () => false)).toEqual([])
    coordinator.term = 6
    await metadata.segments.open([uuid(1)])
    expect(await metadata.segments.claim('a#1', 1, 8, () => false)).toHaveLength(2)
    await metadata.segments.remove([uuid(1)])
    expect(await metadata.segments.load([uuid(1)])).toEqual(new Map())
    coordinator.term = 0
  })

  it('that is gone meanwhile is nobody’s to copy', async () => {
    expect(await metadata.collections.endCopy(uuid(7), under(1, 0), 4)).toBe(0)
    expect(await metadata.collections.load()).toEqual([])
  })

  it('saved again by the coordinator stays as far as the others have brought it', async () => {
    await metadata.collections.save([entry(1)])
    await metadata.collections.endCopy(uuid(1), under(1, 0, 1), 2)
    await metadata.collections.save([{ ...entry(1), name: 'renamed' }])
    expect(await copied()).toMatchObject({ state: 'copied', name: 'renamed', endedPartitions: new Set([0, 1]) })
  })

  it('that is cut meanwhile keeps the name it was given, and does not come back when it was dropped', async () => {
    const unplanned = [1, 2, 3].map((digit) => ({ ...entry(digit), planned: false }))
    coordinator.term = 4
    await metadata.collections.save(unplanned)
    // By what follows definitions beside the plan, and by a successor in office.
    await metadata.collections.save([{ ...entry(1), planned: false, name: 'renamed' }])
    await metadata.collections.remove(uuid(2))
    coordinator.term = 5
    await metadata.collections.save([{ ...entry(3), planned: false }])
    coordinator.term = 4
    expect(await metadata.collections.savePlanned(unplanned)).toEqual([uuid(1)])
    const stored = (await metadata.collections.load()).map(({ uuid, name, planned }) => ({ uuid, name, planned }))
    expect(stored).toEqual([
      { uuid: uuid(1), name: 'renamed', planned: true },
      { uuid: uuid(3), name: 'c3', planned: false },
    ])
    coordinator.term = 0
  })

  it('keeps what a later coordinator has written of it', async () => {
    coordinator.term = 5
    await metadata.collections.save([{ ...entry(1), name: 'later' }])
    coordinator.term = 4
    const late = await metadata.collections.save([{ ...entry(1), name: 'earlier' }]).catch((error) => error)
    expect(late).toMatchObject({ failure: 'LeaseLost' })
    await metadata.collections.remove(uuid(1))
    expect(await copied()).toMatchObject({ name: 'later' })
    coordinator.term = 6
    await metadata.collections.remove(uuid(1))
    expect(await metadata.collections.load()).not.toContainEqual(expect.objectContaining({ name: 'later' }))
    coordinator.term = 0
  })
})

const segment = (digit: number, ordinal: number) => ({
  collection: uuid(digit),
  ordinal,
  rank: ordinal,
  from: null,
  to: null,
  last: null,
  done: false,
  documents: 0,
  bytes: 0,
  attempts: 0,
  wasOwn: false,
  claim: 0,
})

/** `_id: <int32>` as an element. */
function int(value: number): Buffer {
  const element = Buffer.from('105f69640000000000', 'hex')
  element.writeInt32LE(value, 5)
  return element
}
