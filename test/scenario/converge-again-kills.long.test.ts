import { expect, test, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf, loseHistory, smallOplog } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { seedData } from '../support/seed-data.ts'
import { type Faults, startSync, startTandem, type Tandem } from '../support/tandem-process.ts'
import { createWorkload, type Workload } from '../support/workload.ts'

/** The coordinator dies while it prepares another convergence, and while it converges. A workload runs meanwhile. */

const pair = pairedSets({ source: smallOplog(64) })
const steps = ['replan', 'replanCollections', 'replanDefinitions', 'replanEnd'] as const

const until = (holds: () => unknown) =>
  vi.waitFor(async () => expect(await holds()).toBe(true), { timeout: 90_000, interval: 50 })

const uris = () => ({ cluster0: pair.source.uri, cluster1: pair.destination.uri })

/** Starts an instance, and waits until it has connected to both clusters. */
async function start(id: string, faults: Faults = {}): Promise<Tandem> {
  const tandem = await startTandem({ ...uris(), id, faults })
  await until(() => tandem.progress().then(() => true))
  return tandem
}

/** Runs the workload in the background. A caller that awaits the returned promise gets the workload's error. */
function write(workload: Workload, ended: AbortSignal): Promise<unknown> {
  const writing = workload.run(ended)
  writing.catch(() => {})
  return writing
}

async function seeded(seed: string): Promise<Workload> {
  await seedData(pair.source.uri, seed, 0.3)
  return createWorkload({ uri: pair.source.uri, seed, ddl: true, transactions: true, opsPerSecond: 20 })
}

/** Pauses running instances, runs the workload, and makes the oplog roll over past their position. */
async function lose(instances: Iterable<Tandem>, workload: Workload): Promise<void> {
  const all = [...instances]
  for (const one of all) await one.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 120, what: 'canCommit' })
  for (const one of all) expect(await one.post('pause')).toMatchObject({ status: 200 })
  await workload.runSteps(60)
  await loseHistory(pair.sourceClient)
}

async function equal(): Promise<void> {
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
}

const committed = ({ state }: { state: string }) => state === 'COMMITTED'

test.each(steps)('an instance that is killed at %s continues by itself, and both clusters are equal', async (step) => {
  const workload = await seeded(`killed at ${step}`)
  const first = await start('a')
  await startSync(first, {})
  await lose([first], workload)
  await first.stop()

  await using faulty = await start('a', { crashAt: step })
  await until(async () => (await faulty.progress()).state === 'PAUSED')
  await faulty.post('resume').catch(() => {}) // the instance may die before it answers
  await until(() => !faulty.isRunning())
  const ended = new AbortController()
  const writing = write(workload, ended.signal)
  await using last = await start('a')
  // In this case the instance died before it had stored the resume.
  if ((await last.progress()).state === 'PAUSED') expect(await last.post('resume')).toMatchObject({ status: 200 })
  await last.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 180, what: 'canCommit' })
  ended.abort()
  await writing
  await last.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  expect(await last.post('commit')).toMatchObject({ status: 200 })
  await last.waitFor(committed, { timeoutSeconds: 120, what: 'COMMITTED' })
  await equal()
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})

test.each(['replanCollections', 'while it converges'] as const)(
  'after the coordinator of two instances is killed (%s) for good, the other instance completes the convergence',
  async (moment) => {
    const workload = await seeded(`two, ${moment}`)
    const instances = await startInstances(['a', 'b'], uris())
    try {
      for (const one of instances.members.values()) await startSync(one, {})
      await lose(instances.members.values(), workload)
      const isAtStep = moment === 'replanCollections'
      if (isAtStep) {
        // Only a is resumed, and b stays PAUSED, so a becomes the coordinator.
        await instances.members.get('a')?.stop()
        await instances.start('a', { faults: { crashAt: moment } })
        await until(
          async () =>
            (
              await instances.members
                .get('a')
                ?.progress()
                .catch(() => null)
            )?.state === 'PAUSED',
        )
      }
      await instances.members
        .get('a')
        ?.post('resume')
        .catch(() => {})
      if (isAtStep) {
        const isRunning = () => instances.members.get('a')?.isRunning()
        await until(() => !isRunning())
        instances.members.delete('a')
      } else {
        const stages = pair.destinationClient.db(metadataDatabase).collection('stages')
        await until(async () => (await stages.findOne())?.['context']?.startTime != null)
        await instances.kill9('a')
      }
      const ended = new AbortController()
      const writing = write(workload, ended.signal)
      expectAccepted(await instances.post('resume'))
      await instances.allReach(({ canCommit }) => canCommit, 'canCommit', 180)
      ended.abort()
      await writing
      await instances.allReach(({ canCommit }) => canCommit, 'canCommit', 60)
      expectAccepted(await instances.post('commit'))
      await instances.allReach(committed, 'COMMITTED', 120)
      await equal()
      expect(await convergencesOf(pair.destinationClient)).toBe(1)
    } finally {
      await instances.stop()
    }
  },
)
