import { type Document, ObjectId, Timestamp, UUID } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { type Distribution, keepsDistribution, toDistribution, wantedShardKey } from '../../src/definitions/sharding.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { rawDocument } from '../support/bson-values.ts'

/**
 * Tests documents of config.collections in the forms of the server's releases (src/mongo/s/catalog/type_collection.idl in the
 * server's source). The field `unsplittable` exists since 8.0.
 */

const uuid = new UUID('00ff1080-7f0a-4bd0-8cf1-fedcba987654')
const common = {
  _id: 'app.things',
  lastmodEpoch: new ObjectId(),
  lastmod: new Date(0),
  timestamp: new Timestamp({ t: 1_764_000_000, i: 4 }),
  uuid,
  unique: false,
  noBalance: false,
}
const reshardingFields = { reshardingUUID: new UUID(), state: 'cloning' }

const distribution = (fields: Document): Distribution | null =>
  toDistribution(rawDocument(Object.entries({ ...common, ...fields })))

const source = { sharded: true } as Cluster
const byUuid = (one: Distribution | null) => new Map(one ? [[one.uuid, one]] : [])

describe('a document of config.collections', () => {
  it.each([
    ['of 6.0', {}],
    ['of 8.0', { unsplittable: false }],
  ])('%s that belongs to a sharded collection has its shard key', (_what, fields) => {
    expect(distribution({ key: { k: 1, h: 'hashed' }, ...fields })).toEqual({
      name: 'app.things',
      uuid: fromUuid(uuid),
      key: [
        { path: 'k', hashed: false },
        { path: 'h', hashed: true },
      ],
      collated: false,
      unique: false,
      resharding: false,
    })
  })

  it.each([
    ['another than the simple one', { defaultCollation: { locale: 'en', strength: 2 } }, true],
    ['the simple one', { defaultCollation: {} }, false],
  ])('shows that the default collation of its collection is %s', (_what, fields, collated) => {
    expect(distribution({ key: { _id: 1 }, ...fields })).toMatchObject({ collated })
  })

  it('of 8.0 that belongs to an unsharded collection has no shard key', () => {
    expect(distribution({ key: { _id: 1 }, unsplittable: true })).toEqual({
      name: 'app.things',
      uuid: fromUuid(uuid),
      key: null,
      collated: false,
      unique: false,
      resharding: false,
    })
  })

  it.each([
    ['reshardCollection', { key: { k: 1 } }],
    ['moveCollection', { key: { _id: 1 }, unsplittable: true }],
    ['unshardCollection', { key: { k: 1 } }],
  ])('shows that a %s is in progress', (_command, fields) => {
    expect(distribution({ ...fields, reshardingFields })?.resharding).toBe(true)
  })

  it('shows that the key is unique', () => expect(distribution({ key: { k: 1 }, unique: true })?.unique).toBe(true))

  it('without a UUID is ignored', () => expect(distribution({ key: { k: 1 }, uuid: 'none' })).toBeNull())
})

describe('an unsharded collection that the config servers of 8.0 track', () => {
  const tracked = distribution({ key: { _id: 1 }, unsplittable: true })

  it('is not sharded on the destination', () => {
    const things = { database: 'app', name: 'things', uuid: fromUuid(uuid) }
    expect(wantedShardKey(source, byUuid(tracked), [], things)).toBeNull()
  })

  it('keeps its documents on the destination only if it is unsharded on both clusters', () => {
    const key = [{ path: '_id', hashed: false }]
    expect(keepsDistribution(source, tracked ?? undefined, null)).toBe(true)
    expect(keepsDistribution(source, undefined, tracked?.key ?? null)).toBe(true)
    expect(keepsDistribution(source, tracked ?? undefined, key)).toBe(false)
  })
})
