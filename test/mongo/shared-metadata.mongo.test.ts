import type { Document } from 'mongodb'
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { recordTombstones } from '../../src/documents/record-tombstones.ts'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { StreamPosition } from '../../src/mongo/change-stream.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** Several instances write to the metadata of one sync concurrently. */

const one = oneSet()
let metadata: Metadata
/** The coordinator term in which the metadata is written. */
let coordinator: { term: number }
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
  coordinator = { term: 0 }
  metadata = new Metadata(one.cluster, testContext(), coordinator)
})

const uuid = (digit: number): string => Buffer.alloc(16, digit).toString('latin1')
const at = (seconds: number): StreamPosition => ({
  kind: 'token',
  token: { _data: `82${seconds}` },
  time: clusterTime(seconds, 1),
})

/** Returns these partitions, each with this ownership epoch. */
const under = (epoch: number, ...partitions: number[]) => new Map(partitions.map((partition) => [partition, epoch]))

describe('positions of several partitions', () => {
  it('are all initialized together, and only once', async () => {
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

  it('are saved, each under its own ownership epoch', async () => {
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
    // Partition 0 still belongs to this owner, so its position may have moved. Partition 1 belongs to another owner.
    expect(positions.get(1)).toEqual(at(3))
    expect(positions.get(2)).toEqual(at(1))
  })

  it('are separate from the position of a reversal', async () => {
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
    awaitsIndexes: false,
    copiedBytes: 0,
    totalCopied: null,
    shardKey: null,
    endedPartitions: new Set<number>(),
    planned: true,
    hasTombstones: false,
    converging: false,
    convergedFrom: null,
  })
  const copied = async () => (await metadata.collections.load()).find((one) => one.uuid === uuid(1))

  it('is copied when every partition has ended its copy, in any order and any number of times', async () => {
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
    expect(await metadata.collections.endCopy(uuid(1), under(1, 1), 4)).toBe(0)
  })

  it('is copied when the last partitions end its copy at the same moment', async () => {
    await metadata.collections.save([entry(1)])
    const answers = await Promise.all(
      [0, 1, 2, 3].map((partition) => metadata.collections.endCopy(uuid(1), under(1, partition), 4)),
    )
    expect(answers).toContain(0)
    expect(await copied()).toMatchObject({ state: 'copied', endedPartitions: new Set([0, 1, 2, 3]) })
  })

  it('is completed by the next read if the instance that ended the last partition crashed before it could', async () => {
    await metadata.collections.save([entry(1), entry(2)])
    await metadata.tombstones.add(uuid(1), [{ idElement: int(1), order: 1, reorder: false }])
    const beforeItIsCompleted = metadata.collections.endCopy(uuid(1), under(1, 0, 1, 2, 3), 5)
    expect(await beforeItIsCompleted).toBeNull()
    expect(await copied()).toMatchObject({ state: 'copying' })
    expect(await metadata.collections.copying(4)).toEqual([uuid(2)])
    expect(await copied()).toMatchObject({ state: 'copied', totalCopied: 0 })
    expect(await metadata.tombstones.read(uuid(1), null, 10)).toEqual([])
  })

  it('is not ended by a delayed write of a former owner of a partition', async () => {
    await metadata.collections.save([entry(1), entry(2)])
    await metadata.collections.endCopy(uuid(1), under(3, 1, 2, 3), 4)
    // Partition 0 belongs to another owner now, which records tombstones until it ends the copy itself.
    await metadata.collections.claimCopies(under(4, 0))
    await metadata.tombstones.add(uuid(1), [{ idElement: int(1), order: 1, reorder: false }])
    const late = await metadata.collections.endCopy(uuid(1), under(3, 0), 4).catch((error) => error)
    expect(late).toBeInstanceOf(StoppedError)
    expect(await metadata.collections.copying(4)).toEqual([uuid(1), uuid(2)])
    expect(await metadata.tombstones.read(uuid(1), null, 10)).toHaveLength(1)
    expect(await metadata.collections.endCopy(uuid(1), under(4, 0), 4)).toBe(0)
  })

  it('is not stored as copied by a delayed write of an earlier copy while it converges', async () => {
    const write = vi.spyOn(one.cluster, 'write')
    onTestFinished(() => write.mockRestore())
    await metadata.collections.save([entry(1)])
    await metadata.collections.endCopy(uuid(1), under(1, 0, 1), 2)
    const delayed = write.mock.calls.find(([, command]) => storesCopied(command))
    coordinator.term = 1
    await metadata.collections.converge([{ ...entry(1), converging: true }], under(2, 0, 1))
    await metadata.collections.endCopy(uuid(1), under(2, 0), 2)
    await one.cluster.write(...(delayed as Parameters<typeof one.cluster.write>))
    expect(await copied()).toMatchObject({ state: 'copying', totalCopied: null, endedPartitions: new Set([0]) })
    expect(await metadata.collections.endCopy(uuid(1), under(2, 1), 2)).toBe(0)
    expect(await copied()).toMatchObject({ state: 'copied', totalCopied: 0 })
  })

  it('keeps its tombstones when the removal of the tombstones of an earlier copy arrives late', async () => {
    const write = vi.spyOn(one.cluster, 'write')
    onTestFinished(() => write.mockRestore())
    const sent = () => write.mock.calls.filter(([, command]) => command['delete'] === 'tombstones')
    const tombstone = (id: number) => ({ idElement: int(id), order: id, reorder: false })
    const recorded = async () =>
      (await metadata.tombstones.read(uuid(1), null, 10)).map(({ idElement }) => idElement.at(-4))
    await metadata.collections.save([entry(1)])
    await metadata.tombstones.add(uuid(1), [tombstone(1)])
    await metadata.collections.endCopy(uuid(1), under(1, 0), 1)
    await metadata.tombstones.remove(await metadata.collections.load())
    expect(await recorded()).toEqual([])
    for (const [convergence, convergedFrom] of [clusterTime(5, 1), clusterTime(6, 1)].entries()) {
      coordinator.term = convergence
      const before = await metadata.collections.load()
      await metadata.collections.converge([{ ...entry(1), converging: true }], under(2 + convergence, 0))
      await metadata.tombstones.add(uuid(1), [tombstone(1)], before[0]?.convergedFrom)
      await metadata.tombstones.remove(before)
      await metadata.collections.saveConvergedFrom([uuid(1)], convergedFrom)
      const earlier = [...sent()]
      expect(earlier.length).toBeGreaterThanOrEqual(2 + 2 * convergence)
      // An identity that an earlier copy recorded under the same number is recorded again.
      const identities = [{ idElement: int(1) }, { idElement: int(2) }]
      await recordTombstones({ metadata, nextOrder: () => 1 }, { ...entry(1), convergedFrom }, identities)
      for (const delayed of earlier) await one.cluster.write(...delayed)
      expect(await recorded()).toEqual([1, 2])
      expect(await metadata.collections.endCopy(uuid(1), under(2 + convergence, 0), 1)).toBe(0)
      await metadata.tombstones.remove(await metadata.collections.load())
      expect(await recorded()).toEqual([])
    }
    await metadata.tombstones.add(uuid(1), [tombstone(3)], clusterTime(6, 1))
    await metadata.collections.remove(uuid(1))
    expect(await recorded()).toEqual([])
  })

  it('of an earlier release, which stored no epochs in collections, can be ended by the owner of its partitions', async () => {
    await metadata.collections.save([entry(1)])
    const collections = one.client.db(metadataDatabase).collection('collections')
    await collections.updateMany({}, { $unset: { epochs: 1 } })
    expect(await metadata.collections.endCopy(uuid(1), under(7, 0, 1), 2)).toBe(0)
  })

  it('keeps the plan of a later coordinator despite delayed writes of an earlier coordinator', async () => {
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

  it('that was dropped is not stored again when its copy ends', async () => {
    expect(await metadata.collections.endCopy(uuid(7), under(1, 0), 4)).toBe(0)
    expect(await metadata.collections.load()).toEqual([])
  })

  it('keeps the progress of other instances when the coordinator saves it again', async () => {
    await metadata.collections.save([entry(1)])
    await metadata.collections.endCopy(uuid(1), under(1, 0, 1), 2)
    await metadata.collections.save([{ ...entry(1), name: 'renamed' }])
    expect(await copied()).toMatchObject({ state: 'copied', name: 'renamed', endedPartitions: new Set([0, 1]) })
  })

  it('keeps its new name when its segments are planned, and is not stored again if it was dropped meanwhile', async () => {
    const unplanned = [1, 2, 3].map((digit) => ({ ...entry(digit), planned: false }))
    coordinator.term = 4
    await metadata.collections.save(unplanned)
    // While the plan is made, DDL events rename one collection and drop another, and a later coordinator saves a third.
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

  it('keeps the definition that a later coordinator has written', async () => {
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

/** Returns whether this command stores a collection as copied. */
function storesCopied(command: Document): boolean {
  return command['update'] === 'collections' && command['updates'][0].u.$set.state === 'copied'
}

const segment = (digit: number, ordinal: number) => ({
  collection: uuid(digit),
  ordinal,
  priority: ordinal,
  from: null,
  to: null,
  last: null,
  natural: null,
  done: false,
  documents: 0,
  bytes: 0,
  attempts: 0,
  wasOwn: false,
  claim: 0,
})

/** Returns the BSON element `_id: <int32>`. */
function int(value: number): Buffer {
  const element = Buffer.from('105f69640000000000', 'hex')
  element.writeInt32LE(value, 5)
  return element
}
