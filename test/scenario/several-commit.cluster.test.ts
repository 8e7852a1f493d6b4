import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, expect, it, vi } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { slowness } from '../support/slowness.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** The commit of a sync that several instances share. See test/contract.md. */

const pair = pairedSets()
const patience = { timeout: 90_000, interval: 50 }
const accepted = { status: 200, body: { success: true } }
const body = { source: 'cluster0', destination: 'cluster1' }
const ids = ['a', 'b', 'c']
let instances: Instances | null = null

interface Row {
  _id: number | string
  text: string
}

afterEach(async () => {
  await instances?.stop()
  instances = null
})

interface Ready {
  all: Instances
  coordinator: Tandem
  /** The two others. */
  followers: [Tandem, Tandem]
  idOf: (tandem: Tandem) => string
}

async function ready(documents = 300): Promise<Ready> {
  const things = pair.sourceClient.db('app').collection<Row>('things')
  await things.insertMany(Array.from({ length: documents }, (_, _id) => ({ _id, text: `text of ${_id}` })))
  const all = await startInstances(ids, { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  instances = all
  await all.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await all.post('start', body))
  await all.allReach(({ canCommit }) => canCommit, 'ready to commit')
  const coordinator = await all.coordinator()
  const followers = [...all.members.values()].filter((tandem) => tandem !== coordinator) as [Tandem, Tandem]
  const idOf = (tandem: Tandem): string => [...all.members].find(([, one]) => one === tandem)?.[0] as string
  return { all, coordinator, followers, idOf }
}

/** The moments, ms, at which each showed it. */
async function moments(all: Instances, shows: (progress: Awaited<ReturnType<Tandem['progress']>>) => boolean) {
  return await Promise.all(
    [...all.members.values()].map(async (tandem) => {
      await tandem.waitFor(shows, { timeoutSeconds: 30, what: 'as far as the others' })
      return performance.now()
    }),
  )
}

const spread = (times: number[]): number => Math.max(...times) - Math.min(...times)

async function expectCommitted(all: Instances): Promise<void> {
  const [writable, committed] = await Promise.all([
    moments(all, ({ canWrite }) => canWrite === true),
    moments(all, ({ state }) => state === 'COMMITTED'),
  ])
  const together = 2_000 * (await slowness())
  expect(spread(writable)).toBeLessThan(together)
  expect(spread(committed)).toBeLessThan(together)
  const seen = await all.allReach(({ info }) => info === 'commit completed', 'committed')
  for (const progress of seen) expect(progress).toMatchObject({ canWrite: true, lagTimeSeconds: 0 })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

const warns = (tandem: Tandem, of: string): Promise<void> =>
  vi.waitFor(async () => {
    const { warnings } = await tandem.progress()
    expect(warnings).toContainEqual(expect.stringMatching(new RegExp(`^the commit waits until .*: .*\\b${of}\\b`)))
  }, patience)

it('README: a commit waits until every living instance has received it, names those that have not, and then ends on all within 2 seconds', async () => {
  const { all, coordinator, followers, idOf } = await ready()
  const [early, late] = followers
  expect(await early.post('commit')).toEqual(accepted)
  await warns(early, idOf(coordinator))
  expect(await coordinator.post('commit')).toEqual(accepted)
  await warns(coordinator, idOf(late))
  // Until then the source may be written, and what is written counts.
  await pair.sourceClient.db('app').collection<Row>('things').insertOne({ _id: 'meanwhile', text: 'late' })
  for (const tandem of [early, coordinator]) {
    expect(await tandem.progress()).toMatchObject({ state: 'COMMITTING', canWrite: false })
  }
  expect((await late.progress()).state).toBe('RUNNING')
  expect(await late.post('commit')).toEqual(accepted)
  await expectCommitted(all)
  for (const tandem of all.members.values()) expect((await tandem.progress()).warnings).toBeUndefined()
})

it('README: a commit waits for a paused instance until it is resumed and has got it too', async () => {
  const { all, coordinator, followers, idOf } = await ready()
  const [paused, other] = followers
  expect(await paused.post('pause')).toEqual(accepted)
  for (const tandem of [coordinator, other]) expect(await tandem.post('commit')).toEqual(accepted)
  await warns(coordinator, idOf(paused))
  expect(await paused.post('commit')).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(await paused.post('resume')).toEqual(accepted)
  await paused.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 20, what: 'ready to commit' })
  expect((await coordinator.progress()).state).toBe('COMMITTING')
  expect(await paused.post('commit')).toEqual(accepted)
  await expectCommitted(all)
})

it('README: a commit does not wait for an instance that is lost, and one that comes after it applies nothing any more', async () => {
  const { all, followers, idOf } = await ready()
  const away = idOf(followers[0])
  await all.kill9(away)
  expectAccepted(await all.post('commit'))
  await expectCommitted(all)
  // Both clusters are their users' now: what one has changed is not the other's business.
  const ofSource = pair.sourceClient.db('app').collection<Row>('things')
  const ofDestination = pair.destinationClient.db('app').collection<Row>('things')
  await ofSource.updateMany({}, { $set: { text: 'of the source' } })
  await ofSource.createIndex({ text: 1 })
  await ofDestination.insertOne({ _id: 'new', text: 'of the destination' })
  const back = await all.start(away)
  await back.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'COMMITTED' })
  const late = await all.start('late')
  await late.waitFor(({ state }) => state === 'IDLE', { timeoutSeconds: 20, what: 'IDLE' })
  expect(await late.post('start', body)).toEqual(accepted)
  await late.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'COMMITTED' })
  for (const tandem of [back, late]) expect((await tandem.progress()).canWrite).toBe(true)
  expect(await ofDestination.countDocuments({ text: 'of the source' })).toBe(0)
  expect(await ofDestination.indexes()).toHaveLength(1)
  expect(await ofDestination.countDocuments()).toBe(301)
})

it('2.3: a difference fails the migration on all instances; the coordinator repairs it, the others name it, and resume on all commits', async () => {
  const { all, coordinator, followers, idOf } = await ready()
  await pair.destinationClient.db('app').command({
    update: 'things',
    updates: [{ q: { _id: 7 }, u: { $set: { text: 'foreign' } } }],
    mayBypassWriteBlocking: true,
  })
  expectAccepted(await all.post('commit'))
  const failed = await all.allReach(({ state }) => state === 'FAILED', 'FAILED')
  for (const { failure, canWrite } of failed) {
    expect([failure?.error, canWrite]).toEqual(['VerificationFailed', false])
  }
  const mismatches = await Promise.all(
    [...all.members.values()].map(async ({ url }) => (await fetch(`${url}/api/v1/verification/mismatches`)).json()),
  )
  for (const one of mismatches) {
    expect(one).toMatchObject({
      total: 1,
      mismatches: [{ namespace: 'app.things', kind: 'content', by: 'foreignWrite' }],
    })
  }
  const elsewhere = {
    status: 409,
    body: {
      success: false,
      error: 'WrongState',
      errorDescription: expect.stringContaining(`carried out by the coordinator, ${idOf(coordinator)};`),
    },
  }
  for (const follower of followers) expect(await follower.post('repair')).toMatchObject(elsewhere)
  expect(await coordinator.post('repair')).toMatchObject({ status: 200, body: { repairedDocuments: 1 } })
  expectAccepted(await all.post('resume'))
  await expectCommitted(all)
  expect((await coordinator.progress()).failure).toBeUndefined()
})

it('2.5: an instance killed in the middle of a commit is not waited for, and comes back COMMITTED', async () => {
  const { all, followers, idOf } = await ready()
  const id = idOf(followers[0])
  expectAccepted(await all.post('commit'))
  await sleep(150) // somewhere between the commit point and the verdict
  await all.kill9(id)
  await all.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED')
  const back = await all.start(id)
  await back.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 10, what: 'COMMITTED' })
  expect((await back.progress()).canWrite).toBe(true)
})
