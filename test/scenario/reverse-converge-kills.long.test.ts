import { expect, test, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { canCommit, commit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf, loseHistory, smallOplog } from '../support/lost-history.ts'
import { connected, ReversiblePair, reversible } from '../support/reversible-pair.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { createWorkload, type Workload } from '../support/workload.ts'

/** A process dies during a reversal that converges all collections. A workload runs on the new source meanwhile. */

const pair = new ReversiblePair(smallOplog(64))

/** Commits a sync with random data, and changes the new source at random until its oplog no longer contains the commit. */
async function committedThenLost(seed: string): Promise<Workload> {
  await seedData(pair.left.uri, seed, 0.3)
  await using tandem = await pair.startTandem()
  await startSync(tandem, reversible)
  await commit(tandem)
  const options = { ddl: true, transactions: true, opsPerSecond: 20 }
  const workload = createWorkload({ uri: pair.right.uri, seed, ...options })
  await workload.runSteps(60)
  await loseHistory(pair.rightClient)
  return workload
}

async function equal(): Promise<void> {
  const { differences } = await compareBoth(pair.right.uri, pair.left.uri)
  expect(differences).toEqual([])
}

/** Runs the workload until the sync can be committed; then commits it and compares the clusters. */
async function commitUnder(workload: Workload, tandem: Tandem): Promise<void> {
  const ended = new AbortController()
  const writing = workload.run(ended.signal)
  writing.catch(() => {}) // the code that awaits it handles the error
  await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 180, what: 'canCommit' })
  ended.abort()
  await writing
  await commit(tandem)
  await equal()
  expect(await convergencesOf(pair.leftClient)).toBe(1)
}

const isPlanned = async () => {
  const stored = await pair.leftClient.db(metadataDatabase).collection('stages').findOne()
  return stored?.['context']?.startTime != null
}

const until = (holds: () => unknown) =>
  vi.waitFor(async () => expect(await holds()).toBe(true), { timeout: 90_000, interval: 20 })

test.each(['reverseDeferOptions', 'replan', 'replanEnd'])(
  'an instance that is killed at %s continues by itself, and both clusters are equal',
  async (step) => {
    const workload = await committedThenLost(`reverse killed at ${step}`)
    {
      await using faulty = await pair.startTandem({ crashAt: step })
      await connected(faulty)
      await faulty.post('reverse').catch(() => {}) // the instance may die before it answers
      await until(() => !faulty.isRunning())
    }
    await using last = await pair.startTandem()
    await commitUnder(workload, last)
  },
)

test('an instance that is killed while it converges continues by itself, and the sync can be reversed once more', async () => {
  const workload = await committedThenLost('reverse killed while it converges')
  {
    await using first = await pair.startTandem()
    await connected(first)
    expect(await first.post('reverse')).toMatchObject({ status: 200 })
    await until(isPlanned)
    await first.kill9()
  }
  await using last = await pair.startTandem()
  await commitUnder(workload, last)
  await createWorkload({ uri: pair.left.uri, seed: 'back', ddl: true, transactions: true }).runSteps(40)
  expect(await last.post('reverse')).toMatchObject({ status: 200 })
  await canCommit(last)
  await commit(last)
  await equal()
})

test('after the coordinator of two instances is killed for good while they converge, the other instance completes the reversal', async () => {
  const workload = await committedThenLost('two reverse')
  const instances = await startInstances(['coordinator', 'b'], { cluster0: pair.left.uri, cluster1: pair.right.uri })
  try {
    await Promise.all([...instances.members.values()].map(connected))
    const [b] = [instances.members.get('b') as Tandem]
    expect(await b.post('start', { source: 'cluster0', destination: 'cluster1', ...reversible })).toMatchObject({
      status: 200,
    })
    await committed(b)
    expectAccepted(await instances.post('reverse'))
    await until(isPlanned)
    const coordinatorID = (await b.progress()).coordinatorID as string
    await instances.kill9(coordinatorID)
    const [other] = [...instances.members.values()] as [Tandem]
    await commitUnder(workload, other)
  } finally {
    await instances.stop()
  }
})
