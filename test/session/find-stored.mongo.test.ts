import { Timestamp } from 'mongodb'
import { beforeEach, describe, expect, it } from 'vitest'
import { SyncStore } from '../../src/coordination/sync-store.ts'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import type { ClusterName } from '../../src/mongo/cluster.ts'
import type { ClusterFacts } from '../../src/mongo/identity.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { OlderMetadata } from '../../src/mongo/older-metadata.ts'
import { swappedRecord } from '../../src/reverse/move-metadata.ts'
import { findStoredSync } from '../../src/session/find-stored.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { olderContext, olderSyncs } from '../older/stages-of-0.1.ts'
import { storedRecord } from './stored-record.ts'

/**
 * Tests which record on the two clusters is trusted. Any user may have written the record on a source. cluster0 is the
 * first source.
 */

let two: TwoClusters
emptiedClusters((started) => {
  two = started
})
beforeEach(() => {
  for (const cluster of [two.source, two.destination]) cluster.metadataDatabase = metadataDatabase
})
const clusters = () => ({ cluster0: two.source, cluster1: two.destination })
const clients = () => ({ cluster0: two.sourceClient, cluster1: two.destinationClient })
const on = (name: ClusterName) => new Metadata(clusters()[name], two.context)
const stored = (name: ClusterName) => clients()[name].db(metadataDatabase)

const facts = (identity: string) => ({ identity }) as ClusterFacts
const find = () => findStoredSync(clusters(), { cluster0: facts('zero'), cluster1: facts('one') }, two.context)
const conflict = expect.objectContaining({ failure: 'StoredStateConflict' })

const reversed = swappedRecord(storedRecord, { kind: 'time', time: 9n })
const planted = { ...reversed, configuration: { ...reversed.configuration, enableUserWriteBlocking: 'none' as const } }

describe('a record on the source', () => {
  it.each([
    ['of a reversal that no instance has announced', reversed],
    ['of a much later reversal', { ...reversed, generation: 1_001 }],
    ['with the generation of the record on the destination', { ...reversed, generation: 0 }],
    ['with a negative generation', { ...reversed, generation: -1 }],
    ['whose generation is not a number', { ...reversed, generation: Number.NaN }],
  ])('%s is refused with StoredStateConflict', async (_what, record) => {
    await on('cluster1').saveSync(storedRecord)
    await stored('cluster1').collection<{ _id: string }>('leases').insertOne({ _id: 'instance:tandem' })
    await on('cluster0').saveSync(record)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is refused when the other cluster has no metadata, because it never was a destination', async () => {
    await on('cluster0').saveSync(reversed)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is refused, during a reversal and after it, unless it equals the record that the destination has announced', async () => {
    await on('cluster1').saveSync(storedRecord)
    await on('cluster1').announceMove(reversed)
    expect(await find()).toEqual(storedRecord)
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
  it('is trusted if the former destination still has leases after its other metadata was removed', async () => {
    await on('cluster0').saveSync(reversed)
    await stored('cluster1').collection<{ _id: string }>('leases').insertOne({ _id: 'instance:tandem' })
    expect(await find()).toEqual(reversed)
  })

  const context = { ...olderContext, ...olderSyncs['reversal died at reverseSwitch'].instance }

  it('is trusted while a reversal by the previous release is under way', async () => {
    await on('cluster1').saveSync(storedRecord)
    await on('cluster0').saveSync(reversed)
    const moving = { revision: 9, value: { reversing: 'moving' }, context: {} }
    await new SyncStore(clusters().cluster1, two.context, 0).begin(moving as never)
    expect(await find()).toEqual(reversed)
    await new SyncStore(clusters().cluster1, two.context, 0).begin({ ...moving, value: 'committed' } as never)
    // In that release and in this one, the stored instance shows the reversal a moment before the stored sync does.
    await on('cluster1').saveInstance('tandem', context)
    await expect(find()).rejects.toThrow(conflict)
  })

  it('is trusted while a reversal by an even earlier release is under way', async () => {
    await on('cluster1').saveSync(storedRecord)
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
  await on('cluster1').saveSync(storedRecord)
  expect(await find()).toEqual(storedRecord)
})

describe('the metadata database', () => {
  const older = (name: ClusterName) => new Metadata(clusters()[name], two.context, undefined, olderMetadataDatabase)
  const databases = () => [two.source, two.destination].map((cluster) => cluster.metadataDatabase)
  const both = (name: string) => [name, name]

  it('of a sync of an earlier release has the older name on both clusters, also after a reversal', async () => {
    await older('cluster1').saveSync(storedRecord)
    expect(await find()).toEqual(storedRecord)
    expect(databases()).toEqual(both(olderMetadataDatabase))
    await on('cluster1').announceMove(reversed)
    await on('cluster0').saveSync(reversed)
    expect(await find()).toEqual(reversed)
    expect(await two.sourceClient.db(metadataDatabase).listCollections().toArray()).toEqual([])
    expect(databases()).toEqual(both(olderMetadataDatabase))
  })

  it('of a new sync has the new name, also if the database with the older name contains leases of an earlier sync', async () => {
    await two.destinationClient.db(olderMetadataDatabase).collection('leases').insertOne({ owner: 'tandem' })
    for (const cluster of [two.source, two.destination]) cluster.metadataDatabase = olderMetadataDatabase
    expect(await find()).toBeNull()
    expect(databases()).toEqual(both(metadataDatabase))
    await on('cluster1').saveSync(storedRecord)
    expect(await find()).toEqual(storedRecord)
    expect(databases()).toEqual(both(metadataDatabase))
  })

  it.each([
    ['cluster1', 'cluster1'],
    ['cluster0', 'cluster1'],
    ['cluster1', 'cluster0'],
  ] as const)(
    'is refused with StoredStateConflict if one with the new name holds a sync on %s and one with the older name on %s',
    async (ours, theirs) => {
      const of = { cluster1: storedRecord, cluster0: reversed }
      await on(ours).saveSync(of[ours])
      await older(theirs).saveSync(of[theirs])
      const text = new RegExp(
        `in the database ${metadataDatabase} on ${ours}, .* in ${olderMetadataDatabase} on ${theirs}`,
      )
      await expect(find()).rejects.toThrow(conflict)
      await expect(find()).rejects.toThrow(text)
    },
  )

  it('has the new name although the older name is reserved', async () => {
    expect(await new OlderMetadata(two.destination, two.context).reserve()).toBe(true)
    expect(await find()).toBeNull()
    await on('cluster1').saveSync(storedRecord)
    expect(await find()).toEqual(storedRecord)
    expect(databases()).toEqual(both(metadataDatabase))
  })
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
