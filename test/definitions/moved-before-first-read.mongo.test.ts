import { beforeEach, expect, it } from 'vitest'
import { SourcePlacements } from '../../src/definitions/follow-sharding.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'

/** tandem reads databases of a sharded source of which it has not stored a placement yet. */

const one = oneSet()
let placements: SourcePlacements
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
  placements = new SourcePlacements(new Metadata(one.cluster, testContext(), { term: 1 }))
})

const uuid = 'sixteen-bytes-..'
const readAs = (version: string) => ({
  listed: [{ name: 'c', uuid, type: 'collection' as const, options: [] }],
  distributions: new Map(),
  placement: { database: 'app', primary: 'shard1', version },
})
const clonesIn = async (version: string) => [
  ...(await placements.findClones('app', readAs(version), () => false)).values(),
]

it('a database that was moved before its first read may have cloned collections, and a new database has none', async () => {
  expect(await clonesIn('first:1')).toEqual([])
  expect(await clonesIn('first:2')).toEqual(['app.c'])
})

it('a database that was dropped, created again and moved may have cloned collections', async () => {
  await placements.record('app', readAs('first:3'))
  expect(await clonesIn('first:3')).toEqual([])
  expect(await clonesIn('second:1')).toEqual([])
  expect(await clonesIn('second:2')).toEqual(['app.c'])
})
