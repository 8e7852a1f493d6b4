import { afterEach, expect, it, vi } from 'vitest'
import { accepted } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { slowness } from '../support/slowness.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** The commit of a sync that several instances share. See test/contract.md. */

const pair = pairedSets()
const patience = { timeout: 90_000, interval: 50 }
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
  /** The two instances that are not the coordinator. */
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

/** Returns, for each instance, the time in ms at which its progress first meets the condition `shows`. */
async function moments(all: Instances, shows: (progress: Awaited<ReturnType<Tandem['progress']>>) => boolean) {
  return await Promise.all(
    [...all.members.values()].map(async (tandem) => {
      await tandem.waitFor(shows, { timeoutSeconds: 30, what: 'in the state of the others' })
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
  const shown = await all.allReach(({ info }) => info === 'commit completed', 'committed')
  for (const progress of shown) expect(progress).toMatchObject({ canWrite: true, lagTimeSeconds: 0 })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

const warns = (tandem: Tandem, id: string): Promise<void> =>
  vi.waitFor(async () => {
    const { warnings } = await tandem.progress()
    expect(warnings).toContainEqual(
      expect.stringMatching(new RegExp(`^the commit waits for instances .*: .*\\b${id}\\b`)),
    )
  }, patience)

it('README: a commit waits until every live instance has received it, names those that have not, and then ends on all instances within 2 seconds', async () => {
  const { all, coordinator, followers, idOf } = await ready()
  const [early, late] = followers
  expect(await early.post('commit')).toEqual(accepted)
  await warns(early, idOf(coordinator))
  expect(await coordinator.post('commit')).toEqual(accepted)
  await warns(coordinator, idOf(late))
  // While the commit waits, the source accepts writes, and the commit includes them.
  await pair.sourceClient.db('app').collection<Row>('things').insertOne({ _id: 'meanwhile', text: 'late' })
  for (const tandem of [early, coordinator]) {
    expect(await tandem.progress()).toMatchObject({ state: 'COMMITTING', canWrite: false })
  }
  expect((await late.progress()).state).toBe('RUNNING')
  expect(await late.post('commit')).toEqual(accepted)
  await expectCommitted(all)
  for (const tandem of all.members.values()) expect((await tandem.progress()).warnings).toBeUndefined()
})

it('README: a commit waits until a paused instance is resumed and has received the commit too', async () => {
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

it('README: a commit does not wait for a lost instance, and that instance applies nothing when it returns after the commit', async () => {
  const { all, followers, idOf } = await ready()
  const lost = idOf(followers[0])
  await all.kill9(lost)
  expectAccepted(await all.post('commit'))
  await expectCommitted(all)
  // Users own both clusters now, and no instance applies a change of one cluster to the other.
  const onSource = pair.sourceClient.db('app').collection<Row>('things')
  const onDestination = pair.destinationClient.db('app').collection<Row>('things')
  await onSource.updateMany({}, { $set: { text: 'of the source' } })
  await onSource.createIndex({ text: 1 })
  await onDestination.insertOne({ _id: 'new', text: 'of the destination' })
  const back = await all.start(lost)
  await back.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'COMMITTED' })
  const late = await all.start('late')
  await late.waitFor(({ state }) => state === 'IDLE', { timeoutSeconds: 20, what: 'IDLE' })
  expect(await late.post('start', body)).toMatchObject(accepted)
  await late.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'COMMITTED' })
  for (const tandem of [back, late]) expect((await tandem.progress()).canWrite).toBe(true)
  expect(await onDestination.countDocuments({ text: 'of the source' })).toBe(0)
  expect(await onDestination.indexes()).toHaveLength(1)
  expect(await onDestination.countDocuments()).toBe(301)
})

it('2.3: a difference fails the migration on all instances; only the coordinator accepts repair, and a resume of all instances commits', async () => {
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
