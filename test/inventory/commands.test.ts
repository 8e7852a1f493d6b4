import { Double, Long, MaxKey, MinKey, MongoServerError } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { compatibility } from '../../src/inventory/compatibility.ts'
import type { InventoryCluster } from '../../src/inventory/inventory-cluster.ts'
import type { Kind } from '../../src/inventory/kind.ts'
import { searchIndexes } from '../../src/inventory/search-indexes.ts'
import { shellText, shellValue } from '../../src/inventory/shell-text.ts'
import { shardZones, zoneRanges } from '../../src/inventory/zones.ts'

/** Tests kinds of items that the test servers do not have, with prepared answers. */

const answering = (fields: object) => ({ name: 'cluster0', ...fields }) as unknown as InventoryCluster
const sharded = (collections: Record<string, object[]>) =>
  answering({ isSharded: async () => true, aggregate: async (_: string, name: string) => collections[name] })

async function onlyItem(kind: Kind, cluster: InventoryCluster) {
  const [item, ...others] = (await kind.read(cluster)) ?? []
  expect(others).toEqual([])
  if (!item) throw new Error('nothing was read')
  return item
}

const missing = async (kind: Kind, cluster: InventoryCluster) =>
  kind.commands({ how: 'missing', ours: await onlyItem(kind, cluster), theirs: null })

describe('zones', () => {
  const range = { ns: 'app.things', min: { k: new MinKey() }, max: { k: 5 }, tag: 'EU' }
  const least = `EJSON.parse("{\\"k\\":{\\"$minKey\\":1}}")`

  it('of ranges are added; a range that differs is removed first', async () => {
    const cluster = sharded({ tags: [range] })
    const added = `sh.updateZoneKeyRange("app.things", ${least}, {"k":5}, "EU")`
    expect(await missing(zoneRanges, cluster)).toEqual([{ text: added }])
    const ours = await onlyItem(zoneRanges, cluster)
    const theirs = { ...ours, value: { ...ours.value, max: { k: new MaxKey() } } }
    const [removed, ...rest] = zoneRanges.commands({ how: 'different', ours, theirs })
    expect(removed?.text).toMatch(/^sh\.removeRangeFromZone\("app\.things", .*maxKey/)
    expect(rest).toEqual([{ text: added }])
  })

  it('of ranges that exist only on cluster1 are left for the user to remove', async () => {
    const theirs = await onlyItem(zoneRanges, sharded({ tags: [range] }))
    const [command, ...others] = zoneRanges.commands({ how: 'extra', ours: null, theirs })
    expect(command).toMatchObject({
      text: expect.stringMatching(/^sh\.removeRangeFromZone/),
      review: expect.any(String),
    })
    expect(others).toEqual([])
  })

  it('of shards are left to the user, because the names of shards may differ', async () => {
    const [command] = await missing(
      shardZones,
      sharded({ shards: [{ _id: 'shard0', tags: ['EU'] }, { _id: 'shard1' }] }),
    )
    expect(command).toMatchObject({ text: 'sh.addShardToZone("shard0", "EU")', review: expect.any(String) })
  })

  it('do not exist on a replica set', async () => {
    expect(await zoneRanges.read(answering({ isSharded: async () => false }))).toBeNull()
  })
})

describe('search indexes', () => {
  const definition = { mappings: { dynamic: true } }
  const listing = (aggregate: () => Promise<object[]>) =>
    answering({
      databases: async () => ['app'],
      read: async () => ({
        cursor: {
          firstBatch: [
            { name: 'things', type: 'collection' },
            { name: 'v', type: 'view' },
          ],
        },
      }),
      aggregate,
    })

  it('are created with their latest definition', async () => {
    const cluster = listing(async () => [{ id: '1', name: 'default', type: 'search', latestDefinition: definition }])
    expect(await missing(searchIndexes, cluster)).toEqual([
      {
        text: 'db.getSiblingDB("app").getCollection("things").createSearchIndex("default", "search", {"mappings":{"dynamic":true}})',
      },
    ])
  })

  it.each([31082, 40324, 6047401])('are unknown to a server that refuses their stage with %i', async (code) => {
    const refused = listing(async () => {
      throw new MongoServerError({ message: 'no search here', code })
    })
    expect(await searchIndexes.read(refused)).toBeNull()
  })
})

it('text in a script cannot end its line or change the terminal', () => {
  expect(shellText('a"\n\u2028\u009b\u202e')).toBe('"a\\"\\n\\u2028\\u009b\\u202e"')
  expect(shellValue({ '\u2028': 1 })).toBe('{"\\u2028":1}')
})

it('values that JSON has are printed as JSON, and others keep their type', () => {
  expect(shellValue({ n: 1, d: new Double(0.5), l: Long.fromInt(7), t: 'x', f: false })).toBe(
    '{"n":1,"d":0.5,"l":7,"t":"x","f":false}',
  )
  expect(shellValue({ at: new Date(0), n: 1 })).toBe(
    'EJSON.parse("{\\"at\\":{\\"$date\\":{\\"$numberLong\\":\\"0\\"}},\\"n\\":{\\"$numberInt\\":\\"1\\"}}")',
  )
})

it.each([
  ['6.0.27', '7.0', ''],
  ['8.0.4', '6.0', ', confirm: true'],
])(
  'setFeatureCompatibilityVersion for servers of %s is confirmed only where they require it',
  async (release, wanted, confirm) => {
    const servers = (running: string, version: string) =>
      answering({
        isSharded: async () => false,
        read: async (_: string, command: object) =>
          'buildInfo' in command ? { version: running } : { featureCompatibilityVersion: { version } },
      })
    const ours = await onlyItem(compatibility, servers('7.0.14', wanted))
    const theirs = await onlyItem(compatibility, servers(release, '5.0'))
    const [command] = compatibility.commands({ how: 'different', ours, theirs })
    expect(command?.text).toBe(`db.adminCommand({ setFeatureCompatibilityVersion: "${wanted}"${confirm} })`)
  },
)
