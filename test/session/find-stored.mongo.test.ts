import { Timestamp } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { SyncStore } from '../../src/coordination/sync-store.ts'
import type { ClusterName } from '../../src/mongo/cluster.ts'
import type { ClusterFacts } from '../../src/mongo/identity.ts'
import { Metadata, type SyncRecord } from '../../src/mongo/metadata.ts'
import { swappedRecord } from '../../src/reverse/move-metadata.ts'
import { findStoredSync } from '../../src/session/find-stored.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { olderContext, olderSyncs } from '../older/stages-of-0.1.ts'

/**
 * Which record on the two clusters is trusted. Any user may have written the record on a source. cluster0 is the first
 * source.
 */

let two: TwoClusters
emptiedClusters((started) => {
  two = started
})
const clusters = () => ({ cluster0: two.source, cluster1: two.destination })
const clients = () => ({ cluster0: two.sourceClient, cluster1: two.destinationClient })
const on = (name: ClusterName) => new Metadata(clusters()[name], two.context)
const stored = (name: ClusterName) => clients()[name].db('tandem_internal')

const facts = (identity: string) => ({ identity }) as ClusterFacts
const find = () => findStoredSync(clusters(), { cluster0: facts('zero'), cluster1: facts('one') }, two.context)
const conflict = expect.objectContaining({ failure: 'StoredStateConflict' })

const begun: SyncRecord = {
  configuration: {
    ...olderContext.configuration,
    ...{ existingData: 'refuse', timeseries: 'refuse', copyInNaturalOrder: null, detectRandomId: true },
  },
  sourceIdentity: 'zero',
  destinationIdentity: 'one',
  startTime: 7n,
  partitions: 16,
  redis: false,
  generation: 0,
}
const reversed = swappedRecord(begun, { kind: 'time', time: 9n })
const planted = { ...reversed, configuration: { ...reversed.configuration, enableUserWriteBlocking: 'none' as const } }

describe('a record on the source', () => {
  it.each([
    ['of a reversal that no instance has begun', reversed],
    ['of a much later reversal', { ...reversed, generation: 1_001 }],
    ['with the generation of the record on the destination', { ...reversed, generation: 0 }],
    ['with a negative generation', { ...reversed, generation: -1 }],
    ['whose generation is not a number', { ...reversed, generation: Number.NaN }],
  ])('%s is refused with StoredStateConflict', async (_what, record) => {
    await on('cluster1').saveSync(begun)
    await stored('cluster1').collection<{ _id: string }>('leases').insertOne({ _id: 'instance:tandem' })
    await on('cluster0').saveSync(record)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is refused when the other cluster has no metadata, because it never was a destination', async () => {
    await on('cluster0').saveSync(reversed)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is refused, during a reversal and after it, unless it equals the record that the destination has announced', async () => {
    await on('cluster1').saveSync(begun)
    await on('cluster1').announceMove(reversed)
    expect(await find()).toEqual(begun)
    await on('cluster0').saveSync(planted)
    await expect(find()).rejects.toThrow(conflict)
    await on('cluster0').saveSync(reversed)
    expect(await find()).toEqual(reversed)
    await on('cluster1').clear()
    expect(await find()).toEqual(reversed)
    await on('cluster0').saveSync(planted)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is trusted when the operator confirms it with a copy, as docs/troubleshooting.md describes', async () => {
    await on('cluster0').saveSync(reversed)
    const [record] = await stored('cluster0').collection('sync').find().toArray()
    await stored('cluster1')
      .collection('moves')
      .insertOne({ ...record })
    expect(await find()).toEqual(reversed)
  })

  it('is refused after a second reversal, too', async () => {
    const back = swappedRecord(reversed, { kind: 'time', time: 11n })
    await on('cluster0').announceMove(back)
    await on('cluster1').saveSync(back)
    expect(await find()).toEqual(back)
    for (const record of [reversed, { ...reversed, generation: 3 }]) {
      await on('cluster0').saveSync(record)
      await on('cluster0').removeMove()
      await expect(find()).rejects.toThrow(conflict)
    }
  })
})

describe('a sync that an earlier release reversed, which announced nothing', () => {
  it('is trusted because the former destination has leases when its other metadata is removed', async () => {
    await on('cluster0').saveSync(reversed)
    await stored('cluster1').collection<{ _id: string }>('leases').insertOne({ _id: 'instance:tandem' })
    expect(await find()).toEqual(reversed)
  })

  const context = { ...olderContext, ...olderSyncs['reversal died at reverseSwitch'].instance }

  it('is trusted while the reversal is under way when the previous release reversed it', async () => {
    await on('cluster1').saveSync(begun)
    await on('cluster0').saveSync(reversed)
    const moving = { revision: 9, value: { reversing: 'moving' }, context: {} }
    await new SyncStore(clusters().cluster1, two.context, 0).begin(moving as never)
    expect(await find()).toEqual(reversed)
    await new SyncStore(clusters().cluster1, two.context, 0).begin({ ...moving, value: 'committed' } as never)
    // In that release and in this one, the stored instance shows the reversal a moment before the stored sync does.
    await on('cluster1').saveInstance('tandem', context)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is trusted while the reversal is under way when an even earlier release reversed it', async () => {
    await on('cluster1').saveSync(begun)
    await on('cluster0').saveSync(reversed)
    const { stages } = olderSyncs['reversal died at reverseSwitch']
    await stored('cluster1')
      .collection<{ _id: string }>('stages')
      .insertOne({ ...stages, _id: 'sync' })
    await expect(find()).rejects.toThrow(conflict)
    await on('cluster1').saveInstance('tandem', context)
    expect(await find()).toEqual(reversed)
    await on('cluster0').saveSync({ ...reversed, generation: 2 })
    await expect(find()).rejects.toThrow(conflict)
  })
})

it('the record of a sync that was never reversed is trusted when it is the only record', async () => {
  expect(await find()).toBeNull()
  await on('cluster1').saveSync(begun)
  expect(await find()).toEqual(begun)
})

it('a sync that begins removes the announcement of an earlier sync on its destination', async () => {
  await on('cluster1').announceMove(reversed)
  expect(await stored('cluster1').collection('moves').findOne()).toMatchObject({
    schemaVersion: 1,
    generation: 1,
    startTime: expect.any(Timestamp),
  })
  await on('cluster1').removeMove()
  expect(await on('cluster1').loadMove()).toBeNull()
})
