import type { Document, MongoClient } from 'mongodb'
import { afterEach, expect, it, vi } from 'vitest'
import { accepted, canCommit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** Clustered collections expire documents by a collection option. tandem defers it until the commit, as it does TTL indexes. */

/** The TTL monitors of both clusters run every second. */
const everySecond = { extraArgs: ['--setParameter', 'ttlMonitorSleepSecs=1'] }
const pair = pairedSets({ source: everySecond, destination: everySecond })
const clustered = { clusteredIndex: { key: { _id: 1 }, unique: true } }

interface Row extends Document {
  _id: Date
}

const rows = (client: MongoClient, name: string) => client.db('app').collection<Row>(name)
/** Documents whose expiry time passed decades ago. */
const old = (count: number): Row[] => Array.from({ length: count }, (_, at) => ({ _id: new Date(1_000 + at), at }))
const monitor = (client: MongoClient, enabled: boolean) =>
  client.db('admin').command({ setParameter: 1, ttlMonitorEnabled: enabled })

async function expiryOf(client: MongoClient, name: string): Promise<unknown> {
  const [found] = await client.db('app').listCollections({ name }).toArray()
  return (found as { options?: Document } | undefined)?.options?.['expireAfterSeconds']
}

const patience = { timeout: 60_000, interval: 50 }
const eventually = (ask: () => Promise<number>, count: number) =>
  vi.waitFor(async () => expect(await ask()).toBe(count), patience)

afterEach(async () => {
  for (const client of [pair.sourceClient, pair.destinationClient]) await monitor(client, true)
})

it('no document expires on the destination before a commit, and the commit sets the current expiry of the source, also after a reversal', async () => {
  const { sourceClient, destinationClient } = pair
  await monitor(sourceClient, false)
  const source = sourceClient.db('app')
  await source.createCollection('expiring', { ...clustered, expireAfterSeconds: 3_600 })
  await source.createCollection('changed', { ...clustered, expireAfterSeconds: 3_600 })
  await source.createCollection('off', { ...clustered, expireAfterSeconds: 3_600 })
  await source.createCollection('later', clustered)
  for (const name of ['expiring', 'changed', 'off', 'later']) await rows(sourceClient, name).insertMany(old(20))
  await using tandem = await pair.startInstance()
  await startSync(tandem, {
    verification: { enabled: true },
    reversible: true,
    enableUserWriteBlocking: 'sourceAndDestination',
  })
  await canCommit(tandem)
  await source.command({ collMod: 'changed', expireAfterSeconds: 7_200 })
  await source.command({ collMod: 'off', expireAfterSeconds: 'off' })
  await source.command({ collMod: 'later', expireAfterSeconds: 60 })
  await source.createCollection('appears', { ...clustered, expireAfterSeconds: 90 })
  await rows(sourceClient, 'appears').insertMany(old(3))
  await eventually(() => rows(destinationClient, 'appears').countDocuments(), 3)
  const passes = async (): Promise<number> =>
    (await destinationClient.db('admin').command({ serverStatus: 1 }))['metrics'].ttl.passes
  const before = await passes()
  await vi.waitFor(async () => expect(await passes()).toBeGreaterThan(before + 1), patience)
  expect(await rows(destinationClient, 'expiring').countDocuments()).toBe(20)
  await monitor(destinationClient, false)

  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  const expected = { expiring: 3_600, changed: 7_200, off: undefined, later: 60, appears: 90 }
  for (const [name, seconds] of Object.entries(expected)) {
    const found = await expiryOf(destinationClient, name)
    expect({ name, found: found === undefined ? undefined : Number(found) }).toEqual({ name, found: seconds })
  }
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])

  expect(await tandem.post('reverse')).toEqual(accepted)
  await canCommit(tandem)
  expect(await expiryOf(sourceClient, 'expiring')).toBeUndefined()
  await rows(destinationClient, 'expiring').insertOne({ _id: new Date(5) })
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  expect(Number(await expiryOf(sourceClient, 'expiring'))).toBe(3_600)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
})

it('documents that the source expires during a commit do not count as late writes', async () => {
  const { sourceClient, destinationClient } = pair
  await monitor(sourceClient, false)
  await sourceClient.db('app').createCollection('expiring', { ...clustered, expireAfterSeconds: 1 })
  await rows(sourceClient, 'expiring').insertMany(old(500))
  await using tandem = await pair.startInstance()
  await startSync(tandem, { verification: { enabled: true } })
  await canCommit(tandem)
  await monitor(sourceClient, true)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  await eventually(() => rows(sourceClient, 'expiring').countDocuments(), 0)
  await eventually(() => rows(destinationClient, 'expiring').countDocuments(), 0)
})
