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

/** Which of the records on both clusters is believed: anybody may have written the one on a source. cluster0 is the first source. */

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
  configuration: { ...olderContext.configuration, existingData: 'refuse' },
  sourceIdentity: 'zero',
  destinationIdentity: 'one',
  startTime: 7n,
  partitions: 16,
  redis: false,
  generation: 0,
}
const turned = swappedRecord(begun, { kind: 'time', time: 9n })
const planted = { ...turned, configuration: { ...turned.configuration, enableUserWriteBlocking: 'none' as const } }

describe('a record on the source', () => {
  it.each([
    ['of a reversal that nobody has begun', turned],
    ['of a much later reversal', { ...turned, generation: 1_001 }],
    ['as old as the one on the destination', { ...turned, generation: 0 }],
    ['older than every other', { ...turned, generation: -1 }],
    ['that cannot be compared', { ...turned, generation: Number.NaN }],
  ])('%s is refused by name', async (_what, record) => {
    await on('cluster1').saveSync(begun)
    await stored('cluster1').collection<{ _id: string }>('leases').insertOne({ _id: 'instance:tandem' })
    await on('cluster0').saveSync(record)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is refused as well where nothing is on the destination, which never was one', async () => {
    await on('cluster0').saveSync(turned)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is refused, in the middle of a reversal and after it, unless it is what the destination has announced', async () => {
    await on('cluster1').saveSync(begun)
    await on('cluster1').announceMove(turned)
    expect(await find()).toEqual(begun)
    await on('cluster0').saveSync(planted)
    await expect(find()).rejects.toThrow(conflict)
    await on('cluster0').saveSync(turned)
    expect(await find()).toEqual(turned)
    await on('cluster1').clear()
    expect(await find()).toEqual(turned)
    await on('cluster0').saveSync(planted)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is believed when the operator confirms it with a copy, as troubleshooting says', async () => {
    await on('cluster0').saveSync(turned)
    const [record] = await stored('cluster0').collection('sync').find().toArray()
    await stored('cluster1')
      .collection('moves')
      .insertOne({ ...record })
    expect(await find()).toEqual(turned)
  })

  it('of a sync that was reversed twice is one on its source again', async () => {
    const back = swappedRecord(turned, { kind: 'time', time: 11n })
    await on('cluster0').announceMove(back)
    await on('cluster1').saveSync(back)
    expect(await find()).toEqual(back)
    for (const record of [turned, { ...turned, generation: 3 }]) {
      await on('cluster0').saveSync(record)
      await on('cluster0').forgetMove()
      await expect(find()).rejects.toThrow(conflict)
    }
  })
})

describe('a sync that an earlier release reversed, which announced nothing', () => {
  it('is believed by the leases that the former destination has, when all else there is cleared', async () => {
    await on('cluster0').saveSync(turned)
    await stored('cluster1').collection<{ _id: string }>('leases').insertOne({ _id: 'instance:tandem' })
    expect(await find()).toEqual(turned)
  })

  const context = { ...olderContext, ...olderSyncs['reversal died at reverseSwitch'].instance }

  it('by the release before, is believed while the reversal is under way', async () => {
    await on('cluster1').saveSync(begun)
    await on('cluster0').saveSync(turned)
    const moving = { revision: 9, value: { reversing: 'moving' }, context: {} }
    await new SyncStore(clusters().cluster1, two.context, 0).begin(moving as never)
    expect(await find()).toEqual(turned)
    await new SyncStore(clusters().cluster1, two.context, 0).begin({ ...moving, value: 'committed' } as never)
    // Of that release, and of this one, an instance tells so a moment before the sync does.
    await on('cluster1').saveInstance('tandem', context)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('by the one before that, too', async () => {
    await on('cluster1').saveSync(begun)
    await on('cluster0').saveSync(turned)
    const { stages } = olderSyncs['reversal died at reverseSwitch']
    await stored('cluster1')
      .collection<{ _id: string }>('stages')
      .insertOne({ ...stages, _id: 'sync' })
    await expect(find()).rejects.toThrow(conflict)
    await on('cluster1').saveInstance('tandem', context)
    expect(await find()).toEqual(turned)
    await on('cluster0').saveSync({ ...turned, generation: 2 })
    await expect(find()).rejects.toThrow(conflict)
  })
})

it('one that was never reversed is believed where it stands alone', async () => {
  expect(await find()).toBeNull()
  await on('cluster1').saveSync(begun)
  expect(await find()).toEqual(begun)
})

it('a sync that begins forgets what its destination had announced of an earlier one', async () => {
  await on('cluster1').announceMove(turned)
  expect(await stored('cluster1').collection('moves').findOne()).toMatchObject({
    schemaVersion: 1,
    generation: 1,
    startTime: expect.any(Timestamp),
  })
  await on('cluster1').forgetMove()
  expect(await on('cluster1').loadMove()).toBeNull()
})
