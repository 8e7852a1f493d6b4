import { afterEach, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { holdCopy } from '../support/fail-point.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** Several instances share the first pass of the verifier. The verdict is correct even if one of them is killed meanwhile. */

interface Row {
  _id: number
  text: string
}

const pair = pairedSets()
const KiB = 1024
const collections = Array.from({ length: 40 }, (_, number) => `c${String(number).padStart(2, '0')}`)
const documents = 64
const patience = { timeout: 60_000, interval: 20 }
let instances: Instances | null = null

afterEach(async () => {
  await instances?.stop()
  instances = null
})

const claims = () => pair.destinationClient.db(metadataDatabase).collection('verificationClaims')

async function limit(instances: Iterable<Tandem>, bytesPerSecond: number | null): Promise<void> {
  for (const { url } of instances) {
    const response = await fetch(`${url}/api/v1/limits`, {
      method: 'PATCH',
      body: JSON.stringify({ bytesPerSecond }),
    })
    expect(response.status).toBe(200)
  }
}

/** Starts both instances. The copy of `app.held` does not end until the returned fail point is released. */
async function startHeld() {
  const text = 'x'.repeat(8 * KiB)
  const rows = Array.from({ length: documents }, (_, _id) => ({ _id, text }))
  for (const name of collections) await pair.sourceClient.db('app').collection<Row>(name).insertMany(rows)
  await pair.sourceClient.db('app').collection<Row>('held').insertOne({ _id: 1, text })
  const hold = await holdCopy(pair.destinationClient, 'app.held')
  const running = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  instances = running
  await running.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await running.post('start', { source: 'cluster0', destination: 'cluster1' }))
  await vi.waitFor(async () => {
    const counts = await Promise.all(
      collections.map((name) => pair.destinationClient.db('app').collection(name).countDocuments()),
    )
    expect(Math.min(...counts)).toBe(documents)
  }, patience)
  await vi.waitFor(async () => expect((await running.coordinator()).isRunning()).toBe(true), patience)
  return { running, hold }
}

/** Changes one document of each collection before the verifier opens its change streams, so only its first pass finds it. */
async function plantDifferences(): Promise<string[]> {
  for (const [at, name] of collections.entries()) {
    const updates = [{ q: { _id: at }, u: { $set: { text: 'planted' } } }]
    await pair.destinationClient.db('app').command({ update: name, updates, mayBypassWriteBlocking: true })
  }
  return collections.map((name, at) => `app.${name} content {"$numberInt":"${at}"} text`)
}

async function expectNamed(tandem: Tandem, planted: string[]): Promise<void> {
  const response = await fetch(`${tandem.url}/api/v1/verification/mismatches`)
  const { mismatches, total } = (await response.json()) as { mismatches: Record<string, unknown>[]; total: number }
  const named = mismatches.map(
    ({ namespace, kind, id, field }) => `${namespace} ${kind} ${JSON.stringify(id)} ${field}`,
  )
  expect(named.sort()).toEqual(planted)
  expect(total).toBe(planted.length)
}

it('two instances verify, each reports its share, and the verdict names every difference', async () => {
  const { running, hold } = await startHeld()
  const planted = await plantDifferences()
  // The coordinator is slow enough that the other instance compares some of the ranges.
  await limit([await running.coordinator()], 1024 * KiB)
  await hold.release()
  const shares = async (): Promise<number[]> =>
    (await running.instances()).instances.map(({ progress }) => progress.comparedDocumentCount ?? 0)
  await vi.waitFor(async () => expect(Math.min(...(await shares()))).toBeGreaterThan(0), patience)
  await limit(running.members.values(), null)
  await running.allReach(({ canCommit }) => canCommit, 'canCommit')
  const { totals } = await running.instances()
  expect(totals.comparedDocumentCount).toBe(collections.length * documents + 1)
  const [first] = await Promise.all([...running.members.values()].map((tandem) => tandem.progress()))
  expect(first?.verification?.source).toMatchObject({ hashedDocumentCount: collections.length * documents + 1 })
  expectAccepted(await running.post('commit'))
  await running.allReach(({ state }) => state === 'FAILED', 'FAILED')
  await expectNamed(await running.coordinator(), planted)
})

it.each(['the other instance', 'the coordinator'])(
  'the verdict names every difference although %s is killed during the first pass',
  async (killed) => {
    const { running, hold } = await startHeld()
    const planted = await plantDifferences()
    // This rate is so low that the killed instance has claimed ranges and not finished them.
    await limit(running.members.values(), 1024 * KiB)
    await hold.release()
    const coordinator = await running.coordinator()
    const [other] = [...running.members].find(([, tandem]) => tandem !== coordinator) as [string, Tandem]
    const [leader] = [...running.members].find(([, tandem]) => tandem === coordinator) as [string, Tandem]
    await vi.waitFor(async () => {
      const claimed = { owner: { $regex: `^${other}#` }, done: false }
      expect(await claims().countDocuments(claimed)).toBeGreaterThan(0)
    }, patience)
    await running.kill9(killed === 'the coordinator' ? leader : other)
    await limit(
      [...running.members.values()].filter((tandem) => tandem.isRunning()),
      null,
    )
    await running.allReach(({ canCommit }) => canCommit, 'canCommit', 120)
    expectAccepted(await running.post('commit'))
    await running.allReach(({ state }) => state === 'FAILED', 'FAILED', 90)
    await vi.waitFor(async () => expect((await running.coordinator()).isRunning()).toBe(true), patience)
    await expectNamed(await running.coordinator(), planted)
    expect(await claims().countDocuments()).toBe(0)
  },
)
