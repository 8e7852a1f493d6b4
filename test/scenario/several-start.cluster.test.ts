import { afterEach, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted } from '../support/commits.ts'
import { holdCopy } from '../support/fail-point.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** Tests how several instances join one sync. See test/contract.md. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 50 }
const body = { source: 'cluster0', destination: 'cluster1' }
let instances: Instances | null = null

afterEach(async () => {
  await instances?.stop()
  instances = null
})

async function begin(...ids: string[]): Promise<Instances> {
  const started = await startInstances(ids, { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  instances = started
  await started.allReach(({ state }) => state === 'IDLE', 'IDLE')
  return started
}

function member(id: string): Tandem {
  const found = instances?.members.get(id)
  if (!found) throw new Error(`${id} does not run`)
  return found
}

const things = () => pair.sourceClient.db('app').collection<{ _id: number }>('things')
const copyOfThings = () => pair.destinationClient.db('app').collection('things')
const stored = () => pair.destinationClient.db(metadataDatabase).collection('sync').find().toArray()
const insert = (from: number, count: number) =>
  things().insertMany(Array.from({ length: count }, (_, index) => ({ _id: from + index })))

it('1: the same start sent to each instance is accepted; another body is refused with ConfigurationMismatch and changes nothing', async () => {
  await insert(0, 100)
  const started = await begin('a', 'b')
  const [a, b] = [member('a'), member('b')]
  expect(await a.post('start', body)).toMatchObject(accepted)
  const record = await stored()
  const others: object[] = [
    { ...body, reversible: true, enableUserWriteBlocking: 'sourceAndDestination' },
    { ...body, enableUserWriteBlocking: 'none' },
    { ...body, verification: { enabled: false } },
    { ...body, buildIndexes: 'never', verification: { enabled: false } },
    { source: 'cluster1', destination: 'cluster0' },
  ]
  for (const other of others) {
    const answer = await b.post('start', other)
    expect(answer).toMatchObject({ status: 422, body: { success: false, error: 'ConfigurationMismatch' } })
  }
  const idle = await b.progress()
  expect(idle).toMatchObject({ state: 'IDLE', canCommit: false, mongosyncID: null, coordinatorID: null })
  expect(await stored()).toEqual(record)
  expect((await started.instances()).instances.map(({ mongosyncID }) => mongosyncID)).toEqual(['a'])
  // An explicit default equals an omitted field.
  expect(await b.post('start', { ...body, reversible: false, verification: {} })).toMatchObject(accepted)
  expect((await b.progress()).state).toBe('RUNNING')
  const [one, other] = await started.allReach(({ canCommit }) => canCommit, 'ready to commit')
  expect(one?.coordinatorID).toBe('a')
  expect(other?.coordinatorID).toBe('a')
  // An instance that has accepted start accepts an identical one only after a restart.
  for (const one of [a, b]) {
    expect(await one.post('start', body)).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  }
  expect(await a.post('start', others[0])).toMatchObject({ status: 409, body: { error: 'WrongState' } })
})

it('1: start is refused with MetadataVersion when another version of tandem has begun a sync, and that sync stays unchanged', async () => {
  await insert(0, 10)
  await begin('a')
  const sync = pair.destinationClient.db(metadataDatabase).collection<{ _id: string; schemaVersion: number }>('sync')
  await sync.insertOne({ _id: 'sync', schemaVersion: 99 })
  const record = await stored()
  const answer = await member('a').post('start', body)
  expect(answer).toMatchObject({ status: 422, body: { success: false, error: 'MetadataVersion' } })
  expect((await member('a').progress()).state).toBe('IDLE')
  expect(await stored()).toEqual(record)
})

it('1: starts sent at the same moment make one sync, with one coordinator', async () => {
  await insert(0, 500)
  const started = await begin('a', 'b', 'c')
  expectAccepted(await started.post('start', body))
  expect(await stored()).toHaveLength(1)
  const shown = await started.allReach(({ canCommit }) => canCommit, 'ready to commit')
  const coordinators = new Set(shown.map(({ coordinatorID }) => coordinatorID))
  expect(coordinators.size).toBe(1)
  expect(shown.map(({ mongosyncID }) => mongosyncID)).toContain([...coordinators][0])
})

it('1: when different starts are sent at the same moment, one is accepted, and the other gets ConfigurationMismatch', async () => {
  await insert(0, 10)
  await begin('a', 'b')
  const [a, b] = [member('a'), member('b')]
  const answers = await Promise.all([
    a.post('start', body),
    b.post('start', { ...body, enableUserWriteBlocking: 'none' }),
  ])
  const statuses = answers.map((answer) => answer?.status)
  expect([...statuses].sort()).toEqual([200, 422])
  const refused = answers[statuses.indexOf(422)]
  expect(refused?.body.error).toBe('ConfigurationMismatch')
  const states = (await Promise.all([a.progress(), b.progress()])).map(({ state }) => state)
  expect(states[statuses.indexOf(422)]).toBe('IDLE')
  const [record] = await stored()
  expect(record?.['configuration'].enableUserWriteBlocking).toBe(statuses[0] === 200 ? 'destinationOnly' : 'none')
})

it('2.5: instances join while others copy or apply changes, and an instance without a start stays IDLE', async () => {
  await insert(0, 2_000)
  const started = await begin('a', 'b', 'c', 'idle')
  const running = { timeoutSeconds: 60, what: 'ready to commit' }
  {
    await using held = await holdCopy(pair.destinationClient, 'app.things')
    expect(await member('a').post('start', body)).toMatchObject(accepted)
    await held.reached()
    // The first progress already names the coordinator, which is the only instance.
    expect(await member('a').progress()).toMatchObject({ state: 'RUNNING', mongosyncID: 'a', coordinatorID: 'a' })
    expect(await member('b').post('start', body)).toMatchObject(accepted)
    expect(await member('b').progress()).toMatchObject({ state: 'RUNNING', mongosyncID: 'b', coordinatorID: 'a' })
  }
  await member('a').waitFor(({ canCommit }) => canCommit, running)
  await member('b').waitFor(({ canCommit }) => canCommit, running)
  await insert(10_000, 100)
  expect(await member('c').post('start', body)).toMatchObject(accepted)
  await member('c').waitFor(({ canCommit }) => canCommit, running)
  expect((await member('c').progress()).coordinatorID).toBe('a')

  // Every instance owns a share of the partitions, and every instance reports all shares.
  for (const id of ['a', 'b', 'c']) {
    await vi.waitFor(async () => {
      const { instances, totals } = await started.instances(member(id))
      expect(instances.map((one) => [one.mongosyncID, one.status, one.coordinator])).toEqual([
        ['a', 'alive', true],
        ['b', 'alive', false],
        ['c', 'alive', false],
      ])
      const shares = instances.map((one) => one.partitions.length)
      expect([...shares].sort((one, other) => one - other)).toEqual([5, 5, 6])
      expect(new Set(instances.flatMap((one) => one.partitions)).size).toBe(16)
      expect(totals.percent).toBe(100)
      expect(totals.estimatedCopiedBytes).toBe(totals.estimatedTotalBytes)
    }, patience)
  }
  await insert(20_000, 100)
  await vi.waitFor(async () => expect(await copyOfThings().countDocuments()).toBe(2_200), patience)
  const { state, canCommit, ...rest } = await member('idle').progress()
  expect([state, canCommit]).toEqual(['IDLE', false])
  for (const value of Object.values(rest)) expect(value).toBeNull()
  expect(await member('idle').post('commit')).toMatchObject({ status: 409, body: { error: 'WrongState' } })

  // The IDLE instance does not delay the commit.
  for (const id of ['a', 'b', 'c']) expect(await member(id).post('commit')).toEqual(accepted)
  for (const id of ['a', 'b', 'c']) {
    await member(id).waitFor((one) => one.state === 'COMMITTED', { timeoutSeconds: 30, what: 'COMMITTED' })
  }
  expect((await member('idle').progress()).state).toBe('IDLE')
})
